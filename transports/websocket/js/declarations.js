// Declarations: queues, topics, subscriptions and rules as they shall be (section "Declarations" of
// docs/reference/websocket.md).

import { PeeklockError } from "./error.js";
import { encodeRule } from "./topics.js";

/** Plans a declaration and carries it out. What it does not name stays as it is (DEC-01). */
export class Declarations {
  #connection;

  constructor(connection) {
    this.#connection = connection;
  }

  /** The steps that would be done, with their digest. Nothing is changed (DEC-06). */
  async plan(declaration) {
    return (await this.#connection.request("planDeclaration", { declaration: encode(declaration) })).plan;
  }

  /** Does the steps of a plan, and no others, at most 100 at once; what is left is in `rest` (DEC-09 to DEC-11). */
  async carryOut(declaration, digest, { stepsMax } = {}) {
    const asked = { declaration: encode(declaration), digest, stepsMax };
    const { failure, ...carriedOut } = (await this.#connection.request("carryOutDeclaration", asked)).carriedOut;
    return failure ? { ...carriedOut, failure: PeeklockError.of(failure) } : carriedOut;
  }

  /** Plans and does all steps; resolves to the plan that was carried out. Rejects with what ends it: steps before that stay done. */
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

/** A declaration with the values of its rules as the protocol has them. */
function encode({ topics, ...declaration }) {
  const subscription = ({ rules, ...rest }) => ({ ...rest, rules: rules?.map(encodeRule) });
  const topic = ({ subscriptions, ...rest }) => ({ ...rest, subscriptions: subscriptions?.map(subscription) });
  return { ...declaration, topics: topics?.map(topic) };
}
