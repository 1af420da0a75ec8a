package compiled

import "federator.dev/federator/pkg/policy/internal/value"

// native is a builtin on values. done is false where it leaves the call to OPA's
// implementation, which knows every error and every limit: arguments of other types than
// it takes, and collections and texts that are large. What it returns is built in a.
type native func(a *value.Arena, args []value.Value) (v value.Value, done bool)

// natives are the builtins that are called often, by name. Each is held to OPA's by
// TestNatives_DoWhatOPADoes.
var natives = map[string]native{}
