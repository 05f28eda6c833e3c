import { clearInterval, setInterval } from "node:timers";
import { isMainThread } from "node:worker_threads";
import { type Failure, farewell, type Holder, Queue, type View } from "#native";
import { errorOf, unwrap } from "./errors.js";
