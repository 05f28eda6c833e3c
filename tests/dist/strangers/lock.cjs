const { Redlock } = require("redlock-rs");

const lock = new Redlock([process.argv[2]]).lock("stranger");
lock
  .acquire()
  .then(async () => {
    const { fence } = lock;
    await lock.release();
    console.log(String(fence));
  })
  .catch((error) => {
    console.error(error);
    process.exitCode = 1;
  });
