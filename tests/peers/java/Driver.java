// Does with Redisson's lock what a test asks for: JSON lines in, JSON lines out, as tests/peers/README.md describes them.

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.TransportMode;

/** Redisson on one node: RedissonRedLock, its lock on several, is deprecated. */
final class Driver {
    private RedissonClient redisson;
    private RLock lock;

    public static void main(String[] arguments) throws IOException {
        Gson gson = new Gson();
        Driver driver = new Driver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject request = gson.fromJson(line, JsonObject.class);
            JsonObject answer = new JsonObject();
            answer.add("id", request.get("id"));
            try {
                driver.perform(request, answer);
            } catch (Exception error) {
                answer.addProperty("error", error.toString());
            }
            System.out.println(answer);
        }
        // Its threads would keep the process alive.
        System.exit(0);
    }

    private void perform(JsonObject request, JsonObject answer) throws Exception {
        switch (request.get("op").getAsString()) {
            case "open" -> redisson = connect(request.get("urls").getAsString(), 30_000);
            case "acquire" -> {
                lock = redisson.getLock(request.get("name").getAsString());
                answer.addProperty("acquired", acquire(request));
            }
            case "release" -> lock.unlock();
            default -> throw new IllegalArgumentException("no such op");
        }
    }

    /** A client whose locks without a lease time are kept for so long by the server, and renewed by its watchdog. */
    static RedissonClient connect(String url, long watchdogMs) {
        Config config = new Config().setLockWatchdogTimeout(watchdogMs);
        if (url.startsWith("unix:")) {
            config.setTransportMode(TransportMode.EPOLL);
        }
        config.useSingleServer().setAddress(url.replace("unix:", "redis+uds:")).setConnectionMinimumIdleSize(1);
        return Redisson.create(config);
    }

    private boolean acquire(JsonObject request) throws InterruptedException {
        long ttl = request.get("ttl_ms").getAsLong();
        if (request.get("wait_ms").isJsonNull()) {
            lock.lock(ttl, MILLISECONDS);
            return true;
        }
        return lock.tryLock(request.get("wait_ms").getAsLong(), ttl, MILLISECONDS);
    }
}
