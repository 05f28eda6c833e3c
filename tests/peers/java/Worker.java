// The worker of the benchmark for Redisson: tests/bench/README.md has its protocol. It never judges.
//
//     java -cp ... Worker --warm-up 2000 --ttl-ms 10000 redisson redis://127.0.0.1:6379

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.sun.management.ThreadMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** One client of Redisson, and the locks that this thread holds: they belong to the thread that acquired them. */
final class Worker {
    /** How many threads acquire the locks that {@code hold} is to hold. */
    private static final int HANDS = 64;

    private static final Gson GSON = new Gson();

    /** Threads are kept, so that what they allocate can be told afterwards. */
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private final Deque<RLock> held = new ArrayDeque<>();
    private final RedissonClient redisson;
    private final int ttlMs;

    /** Whether its semaphores are counters without owners. */
    private final boolean counts;

    private Worker(String subject, String url, int ttlMs) {
        this.redisson = Driver.connect(url, ttlMs);
        this.ttlMs = ttlMs;
        this.counts = subject.equals("redisson-semaphore");
    }

    public static void main(String[] arguments) throws Exception {
        long begunNs = Clock.nowNs();
        List<String> words = new ArrayList<>(Arrays.asList(arguments));
        boolean cold = words.remove("--cold");
        int warmUp = option(words, "--warm-up", 0);
        int ttlMs = option(words, "--ttl-ms", 10_000);
        // What is left is the subject and the address of the only node.
        Worker worker = new Worker(words.get(0), words.get(1), ttlMs);
        if (cold) {
            worker.startCold(begunNs);
        } else {
            worker.warmUp(warmUp);
            worker.answerEach();
        }
        // Redisson's threads would keep the process alive.
        System.exit(0);
    }

    private static int option(List<String> words, String name, int otherwise) {
        int at = words.indexOf(name);
        if (at < 0) {
            return otherwise;
        }
        words.remove(at);
        return Integer.parseInt(words.remove(at));
    }

    /** Has the virtual machine compile what is to be measured. */
    private void warmUp(int count) throws Exception {
        JsonObject request = new JsonObject();
        request.add("names", GSON.toJsonTree(List.of("bench:warm:" + ProcessHandle.current().pid())));
        request.addProperty("count", count);
        pairs(request);
    }

    private void startCold(long begunNs) throws Exception {
        RLock lock = take("bench:cold");
        long acquiredNs = Clock.nowNs();
        JsonObject answer = new JsonObject();
        answer.addProperty("begun_ns", begunNs);
        // Classes are loaded when they are first used.
        answer.addProperty("imported_ns", begunNs);
        answer.addProperty("acquired_ns", acquiredNs);
        // Coarse, but no library has to be loaded for it.
        answer.addProperty("cpu_ns", ProcessHandle.current().info().totalCpuDuration().orElseThrow().toNanos());
        System.out.println(answer);
        lock.unlock();
    }

    private void answerEach() throws Exception {
        JsonObject version = new JsonObject();
        version.addProperty("version", Redisson.class.getPackage().getImplementationVersion());
        JsonObject ready = new JsonObject();
        ready.add("ready", version);
        System.out.println(ready);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject answer;
            try {
                answer = perform(GSON.fromJson(line, JsonObject.class));
            } catch (Exception error) {
                answer = new JsonObject();
                answer.addProperty("error", error.toString());
            }
            System.out.println(answer);
        }
    }

    private JsonObject perform(JsonObject request) throws Exception {
        String op = request.get("op").getAsString();
        return switch (op) {
            case "pairs" -> pairs(request);
            case "allocations" -> allocations(request);
            case "acquire" -> acquire(request);
            case "release" -> release();
            case "contend" -> contend(request);
            case "hold" -> hold(request);
            case "wait" -> await(request);
            case "usage" -> numbers("cpu_ns", Clock.cpuNs());
            default -> throw new IllegalArgumentException("no such op: " + op);
        };
    }

    private JsonObject pairs(JsonObject request) throws Exception {
        List<String> names = names(request);
        Tally all = new Tally();
        long begunNs = Clock.nowNs();
        long cpuNs = Clock.cpuNs();
        boolean timed = request.has("seconds");
        long endNs = timed ? begunNs + (long) (request.get("seconds").getAsDouble() * 1e9) : 0;
        boolean shared = request.has("shared") && request.get("shared").getAsBoolean();
        int most = timed ? Integer.MAX_VALUE : request.get("count").getAsInt() / names.size();
        each(names.size(), i -> {
            long sinceNs = Clock.nowNs();
            for (int done = 0; done < most && (!timed || done == 0 || sinceNs < endNs); done++) {
                take(names.get(i), shared).unlock();
                sinceNs = all.addSince(sinceNs);
            }
            return null;
        });
        return all.json(Clock.nowNs() - begunNs, Clock.cpuNs() - cpuNs);
    }

    private JsonObject allocations(JsonObject request) throws Exception {
        long before = allocated();
        JsonObject said = pairs(request);
        JsonObject answer = numbers("bytes", allocated() - before);
        answer.add("count", said.get("count"));
        answer.addProperty("counted", "bytes that threads asked Java's heap for");
        return answer;
    }

    private static long allocated() {
        ThreadMXBean living = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        return LongStream.of(living.getThreadAllocatedBytes(living.getAllThreadIds())).filter(bytes -> bytes > 0).sum();
    }

    private JsonObject acquire(JsonObject request) {
        long askedNs = Clock.nowNs();
        held.push(take(request.get("name").getAsString()));
        return numbers("asked_ns", askedNs, "held_ns", Clock.nowNs());
    }

    private JsonObject release() {
        long askedNs = Clock.nowNs();
        held.pop().unlock();
        return numbers("asked_ns", askedNs, "released_ns", Clock.nowNs());
    }

    private JsonObject contend(JsonObject request) throws Exception {
        long startNs = request.get("start_ns").getAsLong();
        long endNs = request.get("end_ns").getAsLong();
        long holdMs = request.get("hold_ms").getAsLong();
        int tasks = request.has("tasks") ? request.get("tasks").getAsInt() : 1;
        int writers = request.has("writers") ? request.get("writers").getAsInt() : tasks;
        Source source = source(request);
        Source reader = reader(request);
        Thread.sleep(Math.max(startNs - Clock.nowNs(), 0) / 1_000_000);
        long cpuNs = Clock.cpuNs();
        Tally waits = new Tally();
        // Of each hold, the instants at which it was asked for, began and ended.
        List<long[]> reads = Collections.synchronizedList(new ArrayList<>());
        List<long[]> writes = Collections.synchronizedList(new ArrayList<>());
        each(tasks, i -> {
            for (long askedNs = Clock.nowNs(); askedNs < endNs; askedNs = Clock.nowNs()) {
                Runnable release = (i < writers ? source : reader).acquire();
                long sinceNs = waits.addSince(askedNs);
                Thread.sleep(holdMs);
                (i < writers ? writes : reads).add(new long[] {askedNs, sinceNs, Clock.nowNs()});
                release.run();
            }
            return null;
        });
        JsonObject answer = waits.json(endNs - startNs, Clock.cpuNs() - cpuNs);
        List<long[]> turns = Stream.concat(reads.stream(), writes.stream()).toList();
        List<long[]> inTime = turns.stream().filter(turn -> turn[1] < endNs).toList();
        answer.addProperty("count", inTime.size());
        answer.addProperty("held_ns", inTime.stream().mapToLong(turn -> turn[2] - turn[1]).sum());
        if (request.has("permits")) {
            List<long[]> holds = turns.stream().map(turn -> new long[] {turn[1], turn[2]}).toList();
            answer.add("holds_ns", GSON.toJsonTree(holds));
        }
        if (request.has("writers")) {
            answer.add("reads_ns", GSON.toJsonTree(reads));
            answer.add("writes_ns", GSON.toJsonTree(writes));
        }
        return answer;
    }

    /** The lock or the semaphore of a request; a semaphore gets its permits from the first worker that asks. */
    private Source source(JsonObject request) {
        String name = request.get("name").getAsString();
        if (request.has("writers")) {
            return () -> locked(redisson.getReadWriteLock(name).writeLock())::unlock;
        }
        if (!request.has("permits")) {
            return () -> take(name)::unlock;
        }
        int permits = request.get("permits").getAsInt();
        if (counts) {
            RSemaphore semaphore = redisson.getSemaphore(name);
            semaphore.trySetPermits(permits);
            return () -> {
                semaphore.acquire();
                return semaphore::release;
            };
        }
        RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(name);
        semaphore.trySetPermits(permits);
        return () -> {
            String permit = semaphore.acquire(ttlMs, MILLISECONDS);
            return () -> semaphore.release(permit);
        };
    }

    /** The lock of a request, for those that share it. */
    private Source reader(JsonObject request) {
        String name = request.get("name").getAsString();
        return () -> take(name, true)::unlock;
    }

    private JsonObject hold(JsonObject request) throws Exception {
        // A lock that was released leaves its watchdog's timer behind: one that finds other locks held when it fires goes
        // on beside theirs, and all are renewed once more each time. Nobody shall pay for the pairs before.
        Thread.sleep(ttlMs / 2);
        long begunNs = Clock.nowNs();
        String prefix = request.get("prefix").getAsString();
        int count = request.get("count").getAsInt();
        each(HANDS, hand -> {
            for (int i = hand; i < count; i += HANDS) {
                take(prefix + i);
            }
            return null;
        });
        return numbers("held", count, "wall_ns", Clock.nowNs() - begunNs);
    }

    /** Waiters are never heard of again: the process is killed with them. */
    private JsonObject await(JsonObject request) {
        List<String> names = names(request);
        for (String name : names) {
            threads.execute(() -> take(name));
        }
        return numbers("waiting", names.size());
    }

    /** Acquires a lock, however long that takes. */
    private RLock take(String name) {
        return take(name, false);
    }

    /** Acquires a lock, as one of its readers if it is shared, however long that takes. */
    private RLock take(String name, boolean shared) {
        return locked(shared ? redisson.getReadWriteLock(name).readLock() : redisson.getLock(name));
    }

    private static RLock locked(RLock lock) {
        lock.lock();
        return lock;
    }

    /** Runs this so often, side by side; throws the first that goes wrong. */
    private void each(int n, Work work) throws Exception {
        List<Callable<Void>> works = IntStream.range(0, n).<Callable<Void>>mapToObj(i -> () -> work.run(i)).toList();
        for (Future<Void> done : threads.invokeAll(works)) {
            done.get();
        }
    }

    @FunctionalInterface
    private interface Work {
        Void run(int i) throws Exception;
    }

    /** Acquires, however long that takes; returns the release. */
    @FunctionalInterface
    private interface Source {
        Runnable acquire() throws InterruptedException;
    }

    private static List<String> names(JsonObject request) {
        return List.of(GSON.fromJson(request.get("names"), String[].class));
    }

    private static JsonObject numbers(String name, long number) {
        JsonObject answer = new JsonObject();
        answer.addProperty(name, number);
        return answer;
    }

    private static JsonObject numbers(String one, long first, String other, long second) {
        JsonObject answer = numbers(one, first);
        answer.addProperty(other, second);
        return answer;
    }
}
