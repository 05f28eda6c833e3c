import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;

/** How often something was done, and how long it took each time; many threads can add to it. */
final class Tally {
    /** More samples of a turn than this are thinned out. */
    private static final int MOST_SAMPLES = 2000;

    private final List<Long> samples = new ArrayList<>();

    /** Adds what began at this instant and ends now; returns now. */
    long addSince(long begunNs) {
        long nowNs = Clock.nowNs();
        synchronized (samples) {
            samples.add(nowNs - begunNs);
        }
        return nowNs;
    }

    /** As an answer. */
    JsonObject json(long wallNs, long cpuNs) {
        int step = Math.max((samples.size() + MOST_SAMPLES - 1) / MOST_SAMPLES, 1);
        JsonArray told = new JsonArray();
        for (int i = 0; i < samples.size(); i += step) {
            told.add(samples.get(i));
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("count", samples.size());
        answer.addProperty("wall_ns", wallNs);
        answer.addProperty("cpu_ns", cpuNs);
        answer.add("samples_ns", told);
        return answer;
    }
}
