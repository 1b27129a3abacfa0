# What is done often, one line each. `just` lists them.

_default:
    @just --list --unsorted

# Run a broker that keeps nothing
run *args:
    cargo run -- serve --ephemeral {{args}}

# Run all tests, or those with a name
test *args:
    ./test {{args}}

# Run the official suites of SDKs whole, against `PEEKLOCK_BIN` or a debug build; `just official --suite go-amqp` only one,
# `just official --suite go-azservicebus 'TestReceiver*'` some of its tests
official *args:
    tests/sdk/official/whole {{args}}

# Kill a broker under load so many times, with choices by a seed if one is given
kill rounds="500" seed="":
    PEEKLOCK_KILL_ROUNDS={{rounds}} {{ if seed == "" { "" } else { "PEEKLOCK_KILL_SEED=" + seed } }} cargo test --test durability killed -- --nocapture

# Kill owners with a million waiting messages, and judge the times until a standby delivers (CLU-57). Half an hour
kill-cluster rounds="150":
    PEEKLOCK_KILL_ROUNDS={{rounds}} cargo test --release --test durability -- --ignored --nocapture --exact \
        a_standby_delivers_within_five_seconds_of_each_kill

# Attack a broker as its clients could, so many times as hard as the tests do
hostile weight="10":
    PEEKLOCK_HOSTILE={{weight}} cargo test --test hostile -- --nocapture --test-threads=1

# Store and remove messages in PostgreSQL for an hour next to a held snapshot, and judge the size of the tables (CLU-12)
store-size minutes="60":
    PEEKLOCK_SIZE_MINUTES={{minutes}} cargo test --release -p peeklock-store-postgres --test server -- --ignored \
        --nocapture --exact size::tables_stay_small_for_an_hour

# Judge the journal with many more seeds than `test` does, and turn every byte of it around
journal-seeds seeds="1000000" first="1":
    PEEKLOCK_JOURNAL_SEEDS={{seeds}} PEEKLOCK_JOURNAL_FIRST={{first}} \
        cargo test --release -p peeklock-core --test journal crash:: -- --nocapture
    PEEKLOCK_JOURNAL_ROT=all PEEKLOCK_JOURNAL_SCRIPTS=5 PEEKLOCK_JOURNAL_ROUNDS=2000 \
        cargo test --release -p peeklock-core --test journal -- --nocapture --skip crash::

# Look without end for bytes that AMQP's parts do not survive: frames, sections, connection or login. Needs a nightly
# compiler and `cargo install cargo-fuzz`
fuzz target="connection" *args:
    cd transports/amqp && cargo +nightly fuzz run {{target}} tests/corpus/{{target}} {{args}}

# Say to AMQP's machines so many scripts with mistakes, and as much noise, from a seed
scripts seeds="1000000" first="1":
    PEEKLOCK_AMQP_SEEDS={{seeds}} PEEKLOCK_AMQP_SEED={{first}} cargo test -p peeklock-amqp --test machine mutations::

# Measure a broker under load; `peeklock bench --help` names the loads
bench *args:
    cargo run --release -- bench {{args}}

# Compare with other brokers, and write the table into docs/reference/performance.md
compare *args:
    benches/compare/run {{args}}

# Format everything
fmt:
    cargo fmt --all

# Judge everything, without running it
lint:
    cargo fmt --all --check && cargo lint

# Open the documentation
doc:
    cargo doc --no-deps --workspace --open

# Build the pages of docs/ as a site with a search box, in target/book. Needs `cargo install mdbook --locked`, version 0.5
book:
    #!/usr/bin/env bash
    set -euo pipefail
    if ! command -v mdbook >/dev/null; then
        echo 'mdbook is missing; install it with: cargo install mdbook --locked' >&2
        exit 1
    fi
    mdbook build docs
    # Links out of docs/, such as ../../examples/host.rs, lead to the repository.
    address=$(sed -n 's/^repository = "\(.*\)"$/\1/p' Cargo.toml)/blob/main
    find target/book -mindepth 2 -name '*.html' -exec sed -i.bak -E \
        -e "s|href=\"\.\./\.\./([^\"#]*)\.html|href=\"$address/\1.md|g" -e "s|href=\"\.\./\.\./|href=\"$address/|g" {} +
    find target/book -name '*.html.bak' -delete
    rm target/book/book.toml target/book/site.css
    echo 'open target/book/index.html'

# What CI runs
ci:
    .ci/run

# Build the program for use
release:
    cargo build --release

# Try the package for Debian, and what the image does, in a system of their own. Takes root and a build with the profile
# `dist`, or a program that is built already; CI does not run it
package *program:
    packaging/test {{program}}

# Licences, advisories, sources of dependencies
deny:
    cargo deny check

# Write the licences of all dependencies, which packages and images carry
notices *args:
    packaging/notices {{args}}

# Dependencies that nothing uses
machete:
    cargo machete

# Spelling
typos:
    typos
