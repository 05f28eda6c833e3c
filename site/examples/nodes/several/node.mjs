import { Redlock } from "redlock-rs";

// In production: ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]
const client = new Redlock(["memory://a", "memory://b", "memory://c"]);
await client.lock("invoice:17").using(async () => {
  const { state, quorum, nodes } = await client.inspect("invoice:17");
  console.log(`${state}: ${quorum} of ${nodes.length} nodes are enough`);
});
