// Package sorted is a copy-on-write B-tree that accounts for what its copies keep alive.
package sorted

import (
	"reflect"

	"github.com/tidwall/btree"
)

// treeDegree keeps nodes small, as items are large and every state that is published
// costs a copy of the path to what changed since.
const treeDegree = 8

// nodeBytes is about what a node takes beside its items.
const nodeBytes = 64

// Tree is a B-tree that counts what its next copy will keep alive of it.
type Tree[T any] struct {
	*btree.BTreeG[T]

	written int // items since replaced was asked
}

func New[T any](less func(a, b T) bool) *Tree[T] {
	return &Tree[T]{BTreeG: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: treeDegree})}
}

// Copy returns one that later changes do not touch.
func (t *Tree[T]) Copy() *Tree[T] { return &Tree[T]{BTreeG: t.BTreeG.Copy()} }

// Set writes an item in the place of its equal.
func (t *Tree[T]) Set(item T) (old T, had bool) {
	t.written++
	return t.BTreeG.Set(item)
}

// Delete takes an item out.
func (t *Tree[T]) Delete(item T) (old T, had bool) {
	t.written++
	return t.BTreeG.Delete(item)
}

// ReplacedBytes is about how many bytes of nodes were replaced since it was last asked: a
// copy from before keeps the old ones whole, however little of them has changed.
func (t *Tree[T]) ReplacedBytes() int64 {
	nodes := min(t.written, t.Len()/treeDegree+1)
	t.written = 0
	return int64(nodes) * (nodeBytes + (2*treeDegree-1)*int64(reflect.TypeFor[T]().Size()))
}
