package limits

import (
	"errors"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// The limits. Each bounds a call to some tens of milliseconds and megabytes.
const (
	MaxElements = 100_000 // of a collection that a builtin builds or walks, including nested ones
	MaxText     = 1 << 20 // bytes of a string that a builtin builds or reads
	MaxParse    = 1 << 18 // bytes of JSON that are parsed
	MaxYAML     = 1 << 16 // bytes of YAML that are parsed
	MaxDigits   = 1000    // decimal digits of a number that is calculated with
	MaxShort    = 256     // bytes of versions, times, layouts, units, globs and CIDRs
	MaxPattern  = 4096    // bytes of a regular expression
	MaxMatching = 2 << 20 // instructions of a regular expression times bytes matched
	MaxPairs    = 100_000 // comparisons of every element of one argument with every one of another
	MaxWidth    = 1000    // width or precision in a format
)

// ErrLimit matches every *Error.
var ErrLimit = errors.New("limit exceeded")

// Error names the limit that a call of a builtin would exceed.
type Error struct {
	Builtin string
	Limit   string // in words, e.g. "elements"
	Max     int    // 0: the argument is refused altogether
}

func (e *Error) Error() string {
	if e.Max == 0 {
		return fmt.Sprintf("%s: %s not allowed", e.Builtin, e.Limit)
	}
	return fmt.Sprintf("%s: limit of %d %s exceeded", e.Builtin, e.Max, e.Limit)
}

// Is makes errors.Is(err, ErrLimit) true.
func (e *Error) Is(target error) bool { return target == ErrLimit }

// Capabilities returns what policies and queries may use: the builtins of the
// allowlist and all of the language. Nothing may be fetched.
func Capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	kept := *c
	kept.Builtins = make([]*ast.Builtin, 0, len(allowed))
	for _, b := range c.Builtins {
		if slices.Contains(allowed, b.Name) {
			kept.Builtins = append(kept.Builtins, b)
		}
	}
	kept.AllowNet = []string{}
	return &kept
}

// Options returns how a query is prepared: with the allowlist, and with errors of
// builtins as errors of the evaluation.
func Options() []func(*rego.Rego) {
	return []func(*rego.Rego){
		rego.Capabilities(Capabilities()),
		rego.StrictBuiltinErrors(true),
	}
}

// guard checks the arguments of a call and returns the limit that they would exceed. The
// builtin itself checks types.
type guard func(args []*ast.Term) *Error

func init() { // OPA's table of builtins may only be changed at initialisation.
	for name, g := range guards {
		f := topdown.GetBuiltin(name)
		if f == nil {
			panic("limits: no builtin " + name)
		}
		if b := ast.BuiltinMap[name]; makes(b) {
			b.CanSkipBctx = false // counted needs the evaluation's context
			f = counted(f)
		}
		topdown.RegisterBuiltinFunc(name, limited(name, f, g))
	}
}

func limited(name string, f topdown.BuiltinFunc, g guard) topdown.BuiltinFunc {
	return func(bctx topdown.BuiltinContext, args []*ast.Term, iter func(*ast.Term) error) error {
		if e := g(args); e != nil {
			e.Builtin = name
			err := &topdown.Error{Code: topdown.BuiltinErr, Message: e.Error(), Location: bctx.Location}
			return topdown.Halt{Err: err.Wrap(e)}
		}
		return f(bctx, args, iter)
	}
}

func over(limit string, maximum int) *Error { return &Error{Limit: limit, Max: maximum} }

func within(limit string, n, maximum int) *Error {
	if n > maximum {
		return over(limit, maximum)
	}
	return nil
}

// product is a*b, or a number beyond any limit.
func product(a, b int) int {
	const big = 1 << 40
	if a > big || b > 0 && a > big/b {
		return big
	}
	return a * b
}
