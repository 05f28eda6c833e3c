import com.sun.jna.Native;
import com.sun.jna.Platform;

/** The two clocks of every figure. */
final class Clock {
    private Clock() {}

    /** The clock that all processes of a machine share. */
    static long nowNs() {
        return System.nanoTime();
    }

    /** Processor time of this process, all its threads together. */
    static long cpuNs() {
        // What Java itself tells comes in steps of 10 ms.
        long[] at = new long[2];
        if (Libc.clock_gettime(Libc.PROCESS_CPUTIME, at) != 0) {
            throw new IllegalStateException("no processor time");
        }
        return at[0] * 1_000_000_000 + at[1];
    }

    /** Loaded when it is first used, which a cold start does not. */
    private static final class Libc {
        static final int PROCESS_CPUTIME = Platform.isMac() ? 12 : 2;

        static {
            Native.register(Libc.class, "c");
        }

        static native int clock_gettime(int clock, long[] at);
    }
}
