import { lock } from "redlock-rs";

/** Remembers the largest fence, and refuses smaller ones. */
class Store {
  fence = 0;

  write(value, fence) {
    if (fence < this.fence) return console.log("refused:", value);
    this.fence = fence;
    console.log("written:", value);
  }
}

const store = new Store();
// This holder is paused after it has read its fence, and loses the lock.
const late = await lock("account:7").using(async (_signal, { fence }) => fence);
await lock("account:7").using(async (_signal, { fence }) => store.write("by the next holder", fence));
store.write("by the late holder", late);
