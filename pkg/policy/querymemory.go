package policy

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Sizes on the heap, in bytes, of what OPA's values are made of, rounded up to what is
// allocated for them.
const (
	termBytes   = 24 + 16 // with the header of a string or number
	arrayBytes  = 96
	objectBytes = 96 + 48 + 144 // with a map of eight
	fieldBytes  = 32 + 8        // an element, and its place among the sorted
	slotBytes   = 48            // of a map of more than eight, half empty
)

// heapOf estimates from above what a value holds on the heap; ok is false once that is
// more than a limit. What is there in many places counts in each, as it does when it
// becomes JSON.
func heapOf(v ast.Value, limit int64) (n int64, ok bool) {
	var walk func(v ast.Value) bool
	walk = func(v ast.Value) bool {
		n += termBytes
		switch v := v.(type) {
		case ast.String:
			n += rounded(len(v))
		case ast.Number:
			n += rounded(len(v))
		case *ast.Array:
			n += arrayBytes + 16*int64(v.Len())
			return n <= limit && !v.Until(func(t *ast.Term) bool { return !walk(t.Value) })
		case ast.Set:
			n += objectBytes + (fieldBytes+slotBytes)*int64(v.Len())
			return n <= limit && !v.Until(func(t *ast.Term) bool { return !walk(t.Value) })
		case ast.Object:
			n += objectBytes + fieldBytes*int64(v.Len())
			if v.Len() > 8 {
				n += slotBytes * int64(v.Len())
			}
			return n <= limit && !v.Until(func(k, t *ast.Term) bool { return !walk(k.Value) || !walk(t.Value) })
		}
		return n <= limit
	}
	ok = walk(v)
	return n, ok
}

// rounded is what is allocated for so many bytes of text, about.
func rounded(n int) int64 { return int64(n+15) &^ 15 }

// hold counts what a query holds in memory: what it has read, and its answer.
func (s *queryStore) hold(v ast.Value) error {
	most := 2 * s.opts.MaxRead
	n, ok := heapOf(v, most-s.held)
	if s.held += n; !ok || s.held > most {
		return fmt.Errorf("%w: what it reads and answers takes more than %d bytes of memory", ErrQueryLimit, most)
	}
	return nil
}
