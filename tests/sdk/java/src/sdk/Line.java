package sdk;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;

/** A proxy that can cut its connections. */
final class Line implements AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final List<Socket> open = new ArrayList<>();

    Line(int port) throws IOException {
        work(() -> {
            while (true) {
                Socket near = listener.accept();
                Socket far = new Socket(InetAddress.getLoopbackAddress(), port);
                synchronized (open) {
                    open.addAll(List.of(near, far));
                }
                work(() -> pass(near, far));
                work(() -> pass(far, near));
            }
        });
    }

    String address() {
        return "127.0.0.1:" + listener.getLocalPort();
    }

    /** Ends all connections without an AMQP close; new ones are accepted. */
    void cut() throws IOException {
        synchronized (open) {
            for (Socket socket : open) socket.close();
            open.clear();
        }
    }

    private static void pass(Socket from, Socket to) throws IOException {
        try (from; to) {
            from.getInputStream().transferTo(to.getOutputStream());
        }
    }

    private static void work(Check.Action action) {
        Thread thread = new Thread(() -> {
            try {
                action.run();
            } catch (Exception over) {
                // The connection or the listener has ended.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        cut();
    }
}
