//! The examples of docs/options.md.

use std::time::Duration;

use redlock::Redlock;

fn main() -> Result<(), redlock::Error> {
    let redlock = Redlock::from_env()?;
    let _ = redlock.lock("report").ttl(Duration::from_secs(30));
    let _ = redlock.lock("report").timeout(Duration::from_secs(5));
    let _ = redlock.lock("report").auto_renew(false);
    let _ = redlock.lock("report").max_hold(Duration::from_secs(300));
    let _ = redlock.lock("report").at_least(Duration::from_secs(60));
    let _ = redlock.lock("report").margin(Duration::from_secs(3));
    let _ = redlock.lock("report").node_timeout(Duration::from_secs(2));
    let _ = redlock.lock("report").restart_delay(Duration::from_secs(60));
    let _ = redlock.lock("report").fence_ttl(Duration::from_secs(172_800));
    let _ = redlock.lock("report").label("web-2");
    let _ = redlock.setnx_lock("report");
    let _ = Redlock::builder().nodes("redis://a").connect_timeout(Duration::from_secs(5)).build()?;
    let _ = Redlock::builder().nodes("redis://a").keepalive(Duration::from_secs(20)).build()?;
    let _ = Redlock::builder().nodes("redis://a").max_connections(32).build()?;
    let _ = Redlock::builder().nodes("redis://a").key_prefix("shop:").build()?;
    let _ = Redlock::builder().nodes("redis://a").password_file("/run/secrets/redis").build()?;
    let _ = Redlock::builder().nodes("rediss://a").tls_ca("ca.pem").build()?;
    let _ = Redlock::builder().nodes("rediss://a").tls_cert("client.pem").tls_key("client.key").build()?;
    let _ = Redlock::builder().nodes("rediss://localhost").tls_server_name("redis.internal").build()?;
    Ok(())
}
