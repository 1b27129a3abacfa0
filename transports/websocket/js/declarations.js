// Declarations: queues, topics, subscriptions and rules in their desired form (section "Declarations" of
// docs/reference/websocket.md).

import { PeeklockError } from "./error.js";
import { encodeRule } from "./topics.js";

/** Plans a declaration and carries it out. Entities outside of the declaration stay unchanged (DEC-01). */
export class Declarations {
  #connection;

  constructor(connection) {
    this.#connection = connection;
  }

  /** Resolves to the necessary steps and their digest; changes nothing (DEC-06). */
  async plan(declaration) {
    return (await this.#connection.request("planDeclaration", { declaration: encode(declaration) })).plan;
  }

  /** Carries out the steps of a plan, at most 100 at once; the remaining ones are in `rest` (DEC-09 to DEC-11). */
  async carryOut(declaration, digest, { stepsMax } = {}) {
    const asked = { declaration: encode(declaration), digest, stepsMax };
    const { failure, ...carriedOut } = (await this.#connection.request("carryOutDeclaration", asked)).carriedOut;
    return failure ? { ...carriedOut, failure: PeeklockError.of(failure) } : carriedOut;
  }

  /** Plans and carries out all steps; resolves to the plan. On failure it rejects, and earlier steps stay done. */
  async declare(declaration) {
    const plan = await this.plan(declaration);
    for (let rest = plan; rest.steps.length > 0; ) {
      const carriedOut = await this.carryOut(declaration, rest.digest);
      if (carriedOut.failure) {
        throw carriedOut.failure;
      }
      rest = carriedOut.rest;
    }
    return plan;
  }
}

/** Converts the values of the rules in a declaration to the form of the protocol. */
function encode({ topics, ...declaration }) {
  const subscription = ({ rules, ...rest }) => ({ ...rest, rules: rules?.map(encodeRule) });
  const topic = ({ subscriptions, ...rest }) => ({ ...rest, subscriptions: subscriptions?.map(subscription) });
  return { ...declaration, topics: topics?.map(topic) };
}
