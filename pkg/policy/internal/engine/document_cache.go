package engine

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/module"
)

// documentCache keeps documents that several evaluations of one snapshot read, until
// the evaluations end: an idle engine holds none. Reads are recorded above it,
// so cache hits are recorded, too.
type documentCache struct {
	values map[documentKey]cachedDocument
	bytes  int64
}

type documentKey struct {
	section    byte
	visibility uint32
	pkg        *module.Package // of objects, which are pruned to what it reads
	a, b, c    string
}

type cachedDocument struct {
	value ast.Value
	bytes int64
}

const maxCachedBytes = 16 << 20 // bytes of text in one worker's cache

// cached returns a document, built once per snapshot while the cache has room, and
// charges the evaluation for it.
func (ev *evaluation) cached(k documentKey, build func() (ast.Value, error)) (ast.Value, error) {
	k.visibility = ev.binding.visible.ID
	c := &ev.w.documents
	if ev.w.passID != ev.w.e.passID || c.bytes > maxCachedBytes || c.values == nil {
		ev.w.passID = ev.w.e.passID
		*c = documentCache{values: map[documentKey]cachedDocument{}}
	}
	if d, ok := c.values[k]; ok {
		return d.value, ev.charge(d.bytes)
	}
	before := ev.bytesRead
	v, err := build()
	if err == nil {
		d := cachedDocument{value: v, bytes: ev.bytesRead - before}
		c.values[k] = d
		c.bytes += d.bytes + 64
	}
	return v, err
}

// dropDocuments empties the cache.
func (w *worker) dropDocuments() { w.documents = documentCache{} }

func (ev *evaluation) charge(n int64) error {
	if ev.bytesRead += n; ev.bytesRead > ev.w.e.opts.Limits.Read {
		return fmt.Errorf("it reads more than %d bytes", ev.w.e.opts.Limits.Read)
	}
	return nil
}
