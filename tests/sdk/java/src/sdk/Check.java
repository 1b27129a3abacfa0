package sdk;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import java.time.Duration;
import java.util.Objects;

/** Checks of scenarios, which throw. */
final class Check {
    /** Maximum wait for an expected message. */
    static final Duration PATIENCE = Duration.ofSeconds(20);

    private Check() {}

    /** An action that may fail. */
    interface Action {
        void run() throws Exception;
    }

    /** A question that can be repeated. */
    interface Question {
        boolean ask() throws Exception;
    }

    static void that(boolean condition, String what) {
        if (!condition) throw new AssertionError(what);
    }

    static void equal(Object value, Object expected, String what) {
        that(Objects.deepEquals(value, expected), what + " is " + value + ", not " + expected);
    }

    /** Asserts that an action is refused with an error of this kind. Returns the error. */
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

    /** Asserts an error of the SDK with this reason. */
    static ServiceBusException refused(ServiceBusFailureReason reason, Action action) throws Exception {
        ServiceBusException error = refused(ServiceBusException.class, action);
        if (!error.getReason().equals(reason)) throw new AssertionError("the reason is not " + reason, error);
        return error;
    }

    /** Asserts a refusal with this AMQP condition, where the SDK passes it on unchanged. */
    static AmqpException condition(AmqpErrorCondition condition, Action action) throws Exception {
        AmqpException error = refused(AmqpException.class, action);
        if (error.getErrorCondition() != condition) throw new AssertionError("the condition is not " + condition, error);
        return error;
    }

    /** Polls until a condition holds. */
    static void until(String what, Question question) throws Exception {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!question.ask()) {
            that(System.nanoTime() < end, "waited in vain: " + what);
            Thread.sleep(50);
        }
    }
}
