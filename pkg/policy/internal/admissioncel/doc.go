// Package admissioncel evaluates the CEL of admission policies on objects as they are:
// ValidatingAdmissionPolicies, and Gatekeeper's templates of engine K8sNativeValidation.
// Expressions are compiled and composed by the API server's own
// k8s.io/apiserver/pkg/admission/plugin/cel, with its library, its types and its limits
// of cost. How decisions follow from them is written after its plugin, and compared with
// a real API server by tests.
//
// # What is asked
//
// An object of a member is judged as if it were created now, as it is. A policy can ask
// for more than that: who makes a request, with which options, what the object was
// before, what an authorizer says. No object answers it, so Compile refuses such an
// expression by name and place instead of evaluating it with nothing there. What follows
// from the object is there: request.kind, request.resource, request.name,
// request.namespace, and request.operation, which is CREATE for a
// ValidatingAdmissionPolicy and "" for Gatekeeper, as its own audit has it.
//
// # Errors
//
// A failing expression denies an admission if failurePolicy is Fail. A Decision says
// that it is one of these: whether that is a violation is its caller's choice.
//
// # Concurrency
//
// A Program is immutable; any number of evaluations may run at once. One ends with its
// context: comprehensions ask it every 100 steps.
//
// # Trade-offs
//
// Message expressions are evaluated only if a validation failed. The API server always
// evaluates them, so that one that exhausts the budget denies even an object that passes.
package admissioncel
