package sdk;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * A broker process of the built program, and requests beyond the SDK: entities, policies, counts.
 * After {@code kill}, {@code start} serves the stored data at the same ports.
 */
final class Broker implements AutoCloseable {
    static final String ROOT = "RootManageSharedAccessKey";

    private static final Pattern LISTENER = Pattern.compile("\\s*(http|websocket|amqp)\\s+\\S+:(\\d+)");

    /** Short, so that scenarios see locks end. */
    private static final Map<String, String> SETTINGS = Map.of(
        "LIMITS__LOCK_DURATION_MIN", "1s",
        "SERVER__ARBITERS", "2",
        "AMQP__WORKERS", "2",
        "LOG__FILTER", "warn");

    final String program;
    private final Path directory;
    private final List<String> flags;
    private final Map<String, String> ports = new HashMap<>(Map.of("http", "0", "websocket", "0", "amqp", "0"));
    private Process process;
    private HttpClient http = HttpClient.newHttpClient();
    private String scheme = "http";
    String key;
    /** Trusts the development authority, if the broker has TLS. */
    SSLContext trust;

    Broker(String program, Path directory, String... flags) throws Exception {
        this.program = program;
        this.directory = Files.createDirectories(directory);
        this.flags = List.of(flags);
        start();
    }

    void start() throws Exception {
        var command = new ArrayList<>(List.of(program, "serve", "--data-dir", "data"));
        command.addAll(flags);
        ports.forEach((name, port) ->
            command.addAll(List.of(name.equals("websocket") ? "--ws" : "--" + name, "127.0.0.1:" + port)));
        var builder = new ProcessBuilder(command).directory(directory.toFile());
        builder.redirectError(ProcessBuilder.Redirect.appendTo(directory.resolve("log").toFile()));
        builder.environment().keySet().removeIf(name -> name.toUpperCase().startsWith("PEEKLOCK"));
        SETTINGS.forEach((name, value) -> builder.environment().put("PEEKLOCK__" + name, value));
        process = builder.start();
        BufferedReader said = process.inputReader();
        int found = 0;
        while (found < ports.size()) {
            String line = said.readLine();
            if (line == null) throw new IOException("the broker did not start; see " + directory.resolve("log"));
            Matcher told = LISTENER.matcher(line);
            if (!told.matches()) continue;
            ports.put(told.group(1), told.group(2));
            found += 1;
        }
        Thread rest = new Thread(() -> said.lines().forEach(line -> {}));
        rest.setDaemon(true);
        rest.start();
        String first = Files.readAllLines(directory.resolve("data/root.connection-string")).get(0);
        key = first.split("SharedAccessKey=", 2)[1].split(";")[0];
        if (flags.contains("--tls")) trustAuthority();
    }

    private void trustAuthority() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (var file = Files.newInputStream(authority().toPath())) {
            store.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        var trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusted.init(store);
        trust = SSLContext.getInstance("TLS");
        trust.init(null, trusted.getTrustManagers(), null);
        http = HttpClient.newBuilder().sslContext(trust).build();
        scheme = "https";
    }

    /** The certificate of the development authority. */
    File authority() {
        return directory.resolve("data/tls/authority.pem").toFile();
    }

    String port(String listener) {
        return ports.get(listener);
    }

    String amqp() {
        return "127.0.0.1:" + ports.get("amqp");
    }

    /** Sends SIGKILL: data that was not durable is lost. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    /** Sends SIGTERM, for an orderly end. */
    void stop() throws InterruptedException {
        process.destroy();
        if (!process.waitFor(20, TimeUnit.SECONDS)) throw new IllegalStateException("the broker does not stop");
    }

    @Override
    public void close() throws InterruptedException {
        kill();
    }

    /** Creates a shared access signature like any client. */
    static String sign(String policy, String key, String resource, long seconds) throws Exception {
        String encoded = URLEncoder.encode(resource, StandardCharsets.UTF_8);
        long expiry = System.currentTimeMillis() / 1000 + seconds;
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key.getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
        byte[] digest = mac.doFinal((encoded + "\n" + expiry).getBytes(StandardCharsets.UTF_8));
        String signature = URLEncoder.encode(Base64.getEncoder().encodeToString(digest), StandardCharsets.UTF_8);
        return "SharedAccessSignature sr=" + encoded + "&sig=" + signature + "&se=" + expiry + "&skn=" + policy;
    }

    String connectionString() {
        return policyString(ROOT, key);
    }

    String policyString(String policy, String key) {
        return stringAt(amqp(), policy, key);
    }

    static String stringAt(String address, String policy, String key) {
        return "Endpoint=sb://" + address + ";SharedAccessKeyName=" + policy + ";SharedAccessKey=" + key
            + ";UseDevelopmentEmulator=true";
    }

    String tokenString(String token) {
        return "Endpoint=sb://" + amqp() + ";SharedAccessSignature=" + token + ";UseDevelopmentEmulator=true";
    }

    /** The connection string for clients with TLS, at the port of a listener. */
    String secureString(String listener) {
        return "Endpoint=sb://localhost:" + port(listener) + ";SharedAccessKeyName=" + ROOT + ";SharedAccessKey=" + key;
    }

    /** Sends a request to the JSON API. Throws on a refusal. */
    String ask(String method, String path, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(scheme + "://localhost:" + port("http") + "/$api/v1/" + path))
            .header("Authorization", sign(ROOT, key, "http://localhost/", 600))
            .header("Content-Type", "application/json")
            .method(method, body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body));
        var answer = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) throw new IOException(method + " " + path + ": " + answer.statusCode() + " " + answer.body());
        return answer.body();
    }
}
