// graphile-worker in its batch mode: a local queue, and completions in batches, as its page on performance has them.
// The protocol is that of bench/peers/protocol.py. Run it with NODE_PATH at the folder that has graphile-worker in it.

const fs = require("node:fs");
const { makeWorkerUtils, run, Logger } = require("graphile-worker");

const NOTE = "sixty bytes of payload";
const BATCH = 20000;

const [dsn, verb, text] = process.argv.slice(2);
const options = JSON.parse(text);
const logger = new Logger(() => (level, message) => level === "error" && console.error(message));

const dues = [];
const starts = [];

function record(due) {
  starts.push(performance.timeOrigin + performance.now()); // Date.now() has whole milliseconds only
  dues.push(due);
}

function say(answer) {
  process.stdout.write(JSON.stringify(answer) + "\n");
}

const job = (due) => ({ identifier: "noop", payload: { due, note: NOTE }, runAt: new Date(due) });

async function promise(utils, { count, due, rate, seconds }) {
  const all = Array.from({ length: count }, (_, place) => (rate ? due + Math.floor((place * 1000) / rate) : due));
  const began = performance.now();
  let done = 0;
  while (done < count && (performance.now() - began) / 1000 < seconds) {
    const batch = all.slice(done, done + BATCH).map(job);
    await utils.addJobs(batch);
    done += batch.length;
  }
  say({ count: done, seconds: (performance.now() - began) / 1000 });
}

async function single(utils, { due, seconds, callers }) {
  const add = () => utils.addJob("noop", { due, note: NOTE }, { runAt: new Date(due) });
  await Promise.all(Array.from({ length: callers }, add)); // connections and caches
  const began = performance.now();
  const spent = () => (performance.now() - began) / 1000;
  let done = 0;
  const call = async () => {
    while (spent() < seconds) {
      await add();
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
  say({ count: done, seconds: spent() });
}

async function work({ out }) {
  process.stdin.on("end", () => process.exit(0)).resume();
  process.on("SIGUSR2", () => {
    fs.writeFileSync(`${out}.part`, JSON.stringify({ due: dues, start: starts }));
    fs.renameSync(`${out}.part`, out);
  });
  const runner = await run({
    preset: {
      worker: {
        connectionString: dsn,
        concurrentJobs: 24,
        maxPoolSize: 25,
        pollInterval: 10,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        logger,
      },
    },
    noHandleSignals: true,
    taskList: { noop: async ({ due }) => record(due) },
    parsedCronItems: [],
  });
  say({ ready: true });
  await runner.promise;
}

async function main() {
  if (verb === "work") return work(options);
  const utils = await makeWorkerUtils({ connectionString: dsn, logger });
  try {
    if (verb === "setup") {
      await utils.migrate();
      say({ done: true });
    } else {
      await { promise, single }[verb](utils, options);
    }
  } finally {
    await utils.release();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
