package sdk;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the scenarios against a broker of their own: {@code BROKER azure|admin|jms [PART OF A
 * TITLE]}. Ends with a line {@code ok N scenarios}, or prints the failures.
 */
final class Main {
    /** Scenarios that run at the same time. */
    private static final int WIDTH = 16;

    /** Maximum duration of a scenario in seconds. */
    private static final int SECONDS_MAX = 60;

    private record Outcome(String title, double seconds, String told) {}

    public static void main(String[] arguments) throws Exception {
        // Shorter than the 75 s after which the broker closes idle connections, so that no request
        // uses a connection that is being closed.
        System.setProperty("jdk.httpclient.keepalive.timeout", "10");
        Path place = Files.createTempDirectory("peeklock-sdk-java-");
        String suite = arguments[1];
        boolean isSecure = suite.equals("admin");
        var chosen = new ArrayList<>(suite(suite));
        for (String word : Arrays.copyOfRange(arguments, 2, arguments.length)) {
            chosen.removeIf(one -> !one.title().contains(word));
        }
        int failed;
        try (Broker broker = new Broker(arguments[0], place.resolve("broker"), isSecure ? new String[] {"--tls"} : new String[0])) {
            failed = run(chosen, broker);
        }
        String log = Files.readString(place.resolve("broker/log"));
        if (log.contains("panicked")) {
            failed += 1;
            System.out.println("--- the broker panicked\n" + log);
        }
        if (failed > 0) {
            System.out.printf("%d of %d scenarios failed; the broker's log is in %s%n", failed, chosen.size(), place);
            System.exit(1);
        }
        try (var all = Files.walk(place)) {
            for (Path path : all.sorted(Comparator.reverseOrder()).toList()) Files.delete(path);
        }
        System.out.printf("ok %d scenarios%n", chosen.size());
        System.exit(0);
    }

    private static List<Scenario> suite(String name) {
        var all = new ArrayList<Scenario>();
        switch (name) {
            case "azure" -> {
                Sending.scenarios(all);
                Receiving.scenarios(all);
                Settling.scenarios(all);
                Scheduling.scenarios(all);
                Sessions.scenarios(all);
                Processors.scenarios(all);
                Transactions.scenarios(all);
                Rules.scenarios(all);
                Rights.scenarios(all);
                Failures.scenarios(all);
            }
            case "admin" -> Administration.scenarios(all);
            case "jms" -> {
                JmsMessages.scenarios(all);
                JmsReceiving.scenarios(all);
                JmsTransactions.scenarios(all);
                JmsFailures.scenarios(all);
            }
            default -> throw new IllegalArgumentException("azure, admin or jms, not " + name);
        }
        return all;
    }

    /** Returns the number of failures. */
    private static int run(List<Scenario> chosen, Broker broker) throws Exception {
        var outcomes = Collections.synchronizedList(new ArrayList<Outcome>());
        ExecutorService workers = Executors.newFixedThreadPool(WIDTH, Main::daemon);
        for (int number = 0; number < chosen.size(); number += 1) {
            Scenario one = chosen.get(number);
            String name = "java-" + number;
            workers.execute(() -> outcomes.add(run(one, broker, name)));
        }
        workers.shutdown();
        workers.awaitTermination(10, TimeUnit.MINUTES);
        outcomes.sort(Comparator.comparing(Outcome::seconds).reversed());
        int failed = 0;
        for (Outcome outcome : outcomes) {
            if (outcome.told() == null) continue;
            failed += 1;
            System.out.printf("--- %s%n%s%n", outcome.title(), outcome.told());
        }
        for (Outcome outcome : outcomes.subList(0, Math.min(5, outcomes.size()))) {
            System.out.printf("slowest: %s %.1f s%n", outcome.title(), outcome.seconds());
        }
        return failed;
    }

    private static Outcome run(Scenario one, Broker broker, String name) {
        long began = System.nanoTime();
        var ended = new CompletableFuture<String>();
        Thread thread = daemon(() -> {
            String told = null;
            try (World world = new World(broker, name)) {
                one.body().run(world);
            } catch (Throwable failure) {
                told = told(failure);
            }
            ended.complete(told);
        });
        thread.start();
        String told;
        try {
            told = ended.get(SECONDS_MAX, TimeUnit.SECONDS);
        } catch (TimeoutException late) {
            var lines = new StringBuilder("it takes too long:\n");
            for (StackTraceElement element : thread.getStackTrace()) lines.append("  ").append(element).append('\n');
            told = lines.toString();
        } catch (Exception failure) {
            told = told(failure);
        }
        return new Outcome(one.title(), (System.nanoTime() - began) / 1e9, told);
    }

    /** A failure with the lines of its stack that belong to this program. */
    private static String told(Throwable failure) {
        var text = new StringWriter();
        failure.printStackTrace(new PrintWriter(text));
        var kept = new StringBuilder();
        for (String line : text.toString().split("\n")) {
            if (!line.startsWith("\tat ") || line.startsWith("\tat sdk.")) kept.append(line).append('\n');
        }
        return kept.toString();
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }
}
