package sdk;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;

/** A port that hands on to another, and can be cut. */
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

    /** Ends all connections without a word of AMQP; new ones are taken. */
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
                // The connection has ended, or the listener.
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
