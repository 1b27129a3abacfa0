package sdk;

/** What is run with a world of its own. */
record Scenario(String title, Body body) {
    /** What a scenario does; it fails by throwing. */
    interface Body {
        void run(World world) throws Exception;
    }
}
