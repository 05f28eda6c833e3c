import redlock

# In production: ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]
client = redlock.Redlock(["memory://a", "memory://b", "memory://c"])
with client.lock("invoice:17"):
    view = client.inspect("invoice:17")
    print(f"{view.state}: {view.quorum} of {len(view.nodes)} nodes are enough")
