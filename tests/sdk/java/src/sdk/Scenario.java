package sdk;

/** A scenario, which runs with a world of its own. */
record Scenario(String title, Body body) {
    /** The code of a scenario. It fails by throwing. */
    interface Body {
        void run(World world) throws Exception;
    }
}
