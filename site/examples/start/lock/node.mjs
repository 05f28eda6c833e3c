import { lock } from "redlock-rs";

await lock("invoice:17").using(async () => {
  console.log("working on invoice 17");
});
