package sdk;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import java.time.Duration;
import java.util.Objects;

/** What scenarios fail by. */
final class Check {
    /** How long one waits for what must come. */
    static final Duration PATIENCE = Duration.ofSeconds(20);

    private Check() {}

    /** Something that may fail. */
    interface Action {
        void run() throws Exception;
    }

    /** Something that can be asked again. */
    interface Question {
        boolean ask() throws Exception;
    }

    static void that(boolean condition, String what) {
        if (!condition) throw new AssertionError(what);
    }

    static void equal(Object value, Object expected, String what) {
        that(Objects.deepEquals(value, expected), what + " is " + value + ", not " + expected);
    }

    /** The error of this kind with which something is refused. */
    static <E extends Throwable> E refused(Class<E> kind, Action action) throws Exception {
        try {
            action.run();
        } catch (Throwable error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (kind.isInstance(cause)) return kind.cast(cause);
            }
            throw new AssertionError("it is refused with no " + kind.getSimpleName(), error);
        }
        throw new AssertionError("nothing was refused");
    }

    /** The same of the SDK, with this reason. */
    static ServiceBusException refused(ServiceBusFailureReason reason, Action action) throws Exception {
        ServiceBusException error = refused(ServiceBusException.class, action);
        if (!error.getReason().equals(reason)) throw new AssertionError("the reason is not " + reason, error);
        return error;
    }

    /** Refused with this condition of AMQP, where the SDK hands that on as it came. */
    static AmqpException condition(AmqpErrorCondition condition, Action action) throws Exception {
        AmqpException error = refused(AmqpException.class, action);
        if (error.getErrorCondition() != condition) throw new AssertionError("the condition is not " + condition, error);
        return error;
    }

    /** Asks again until something is so. */
    static void until(String what, Question question) throws Exception {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!question.ask()) {
            that(System.nanoTime() < end, "waited in vain: " + what);
            Thread.sleep(50);
        }
    }
}
