package resources

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"runtime"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/columns"
	"federator.dev/federator/pkg/queryapi/internal/flat"
	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
)

// encoder writes objects of one resource in one format. It belongs to one
// goroutine.
type encoder struct {
	resource      *catalog.Resource
	shape         shape
	yaml          bool
	protobuf      bool
	clusterColumn bool       // the first cell of a row names the member
	flat          *flat.Keys // objects have keys that no two members share; nil: their own
	include       metav1.IncludeObjectPolicy
	strict        bool // what cannot be converted is an error
	framed        bool // each element is a frame of a part
	rows          *columns.Encoder

	body, converted []byte
	indexed         []byte // one body as the index has it, on its way to flat keys
	item            []byte // one element in JSON, on its way to YAML or protobuf
	message         []byte // one element in protobuf
	splicer
}

// append appends one object, or one row of a table.
func (e *encoder) append(dst []byte, o aggregate.Object, added addedMetadata) ([]byte, error) {
	var err error
	if err = e.load(o); err != nil {
		return dst, err
	}
	switch e.shape {
	case metadataOnly:
		return e.appendPartial(dst, e.body, added)
	case table:
		return e.appendRow(dst, added)
	case asRows:
		return e.rows.Append(dst, o, e.body)
	}
	return e.appendFull(dst, added)
}

// load reads an object's body, with flat keys where requested, before it is printed, converted
// or cut, so that all forms have the same keys.
func (e *encoder) load(o aggregate.Object) (err error) {
	if e.flat == nil {
		e.body, err = o.AppendBody(e.body[:0])
		return err
	}
	if e.indexed, err = o.AppendBody(e.indexed[:0]); err != nil {
		return err
	}
	e.body = e.flat.ForNamespace(o.Namespace()).Append(e.body[:0], e.indexed, o.Member())
	return nil
}

func (e *encoder) appendFull(dst []byte, added addedMetadata) ([]byte, error) {
	var err error
	var conversion *catalog.ConversionError
	switch e.converted, err = e.resource.AppendAt(e.converted[:0], e.body); {
	case err == nil:
		return e.appendObject(dst, e.converted, added)
	case !e.strict && errors.As(err, &conversion):
		// One object must not fail the list: it is sent at the version that the index
		// holds, which its apiVersion says.
		return e.appendObject(dst, e.body, added)
	}
	return dst, err
}

func (e *encoder) appendRow(dst []byte, added addedMetadata) ([]byte, error) {
	row, err := e.resource.Row(e.body)
	if err != nil {
		return dst, err
	}
	cells := row.Cells
	if e.clusterColumn {
		cells = append([]any{added.member}, cells...)
	}
	dst = append(dst, `{"cells":`...)
	text, err := json.Marshal(cells)
	if err != nil {
		return dst, err
	}
	dst = append(dst, text...)
	if len(row.Conditions) > 0 {
		if text, err = json.Marshal(row.Conditions); err != nil {
			return dst, err
		}
		dst = append(append(dst, `,"conditions":`...), text...)
	}
	dst = append(dst, `,"object":`...)
	switch e.include {
	case metav1.IncludeNone:
		dst = append(dst, "null"...)
	case metav1.IncludeObject:
		dst, err = e.appendFull(dst, added)
	default:
		dst, err = e.appendPartial(dst, e.body, added)
	}
	return append(dst, '}'), err
}

// columns are those of the Table, with the Cluster column first.
func (q *request) columns() []metav1.TableColumnDefinition {
	columns := q.resource.Columns()
	if !q.hasClusterColumn() {
		return columns
	}
	cluster := metav1.TableColumnDefinition{
		Name: "Cluster", Type: "string", Description: "The member that has the object, as <namespace>/<name> of its Cluster.",
	}
	return append([]metav1.TableColumnDefinition{cluster}, columns...)
}

// hasClusterColumn reports whether rows have a column for the member; flat keys already
// contain it.
func (q *request) hasClusterColumn() bool { return q.target.Member == "" && !q.target.Flat() }

func (q *request) encoder() *encoder {
	e := &encoder{
		resource: q.resource, shape: q.format.shape, yaml: q.format.yaml, protobuf: q.format.protobuf,
		clusterColumn: q.hasClusterColumn(), flat: q.keys, include: q.params.IncludeObject, framed: q.ask != nil,
		body: q.buffers.get(), converted: q.buffers.get(),
	}
	if q.rowColumns != nil {
		e.rows = q.rowColumns.Encoder(q.snapshot.Member)
	}
	return e
}

// release returns an encoder's buffers to the pool. It must not be used again.
func (q *request) release(e *encoder) {
	q.buffers.put(e.body)
	q.buffers.put(e.converted)
	q.buffers.put(e.indexed)
	q.buffers.put(e.item)
	q.buffers.put(e.message)
}

// shrink frees large buffers of an encoder that is idle.
func (e *encoder) shrink() {
	for _, b := range []*[]byte{&e.body, &e.converted, &e.indexed, &e.item, &e.message} {
		if cap(*b) > maxIdleBuffer {
			*b = nil
		}
	}
}

// maxIdleBuffer is the capacity of a buffer that is kept while nothing is encoded.
const maxIdleBuffer = 64 << 10

// bufferPool reuses byte slices among requests: a list makes little garbage, whatever its
// size.
type bufferPool struct{ pool sync.Pool }

// maxBuffer is the capacity beyond which a buffer is left to the collector.
const maxBuffer = 1 << 20

func (b *bufferPool) get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return (*p)[:0]
	}
	return nil
}

func (b *bufferPool) put(buf []byte) {
	if c := cap(buf); c > 0 && c <= maxBuffer {
		b.pool.Put(&buf)
	}
}

// blockSize is how many objects one goroutine encodes at a time.
const blockSize = 32

// encodedBlock is an encoded block.
type encodedBlock struct {
	text []byte
	err  error
}

// encodeAll encodes objects in order, in JSON separated by commas, and passes the text to
// emit in blocks; many objects are encoded on all processors.
func (q *request) encodeAll(ctx context.Context, objects iter.Seq2[aggregate.Object, error], emit func([]byte) error) error {
	next, stop := iter.Pull2(objects)
	defer stop()
	var failed error
	first := true
	take := func() []aggregate.Object {
		some := make([]aggregate.Object, 0, blockSize)
		for len(some) < blockSize && failed == nil {
			o, err, ok := next()
			if !ok {
				break
			}
			if failed = err; err == nil {
				some = append(some, o)
			}
		}
		return some
	}
	send := func(r encodedBlock) error {
		if r.err != nil {
			return r.err
		}
		text := r.text
		if first && q.ask == nil && !q.format.yaml && !q.format.protobuf && q.rowColumns == nil && len(text) > 0 {
			text, first = text[1:], false // the comma before the first
		}
		err := emit(text)
		q.buffers.put(r.text)
		return err
	}
	some := take()
	if len(some) < blockSize || runtime.GOMAXPROCS(0) == 1 {
		e := q.encoder()
		defer q.release(e)
		for ; len(some) > 0; some = take() {
			if err := send(e.encodeBlock(some, q.buffers.get())); err != nil {
				return err
			}
		}
		return failed
	}
	return q.encodeParallel(ctx, some, take, send, func() error { return failed })
}

// encodeBlock appends some objects to text, each with a comma before it or, in YAML, as an
// element of a sequence. Objects become YAML one by one: as YAML makes maps of them,
// they take some fifty times the memory that they have in JSON.
func (e *encoder) encodeBlock(some []aggregate.Object, text []byte) (r encodedBlock) {
	r.text = text
	for _, o := range some {
		if e.framed {
			if r.text, r.err = e.appendFrame(r.text, o); r.err != nil {
				return r
			}
			continue
		}
		if e.protobuf {
			if r.text, r.err = e.appendItem(r.text, o); r.err != nil {
				return r
			}
			continue
		}
		if e.yaml {
			if r.text, r.err = e.appendYAML(r.text, o); r.err != nil {
				return r
			}
			continue
		}
		if e.rows == nil {
			r.text = append(r.text, ',')
		}
		if r.text, r.err = e.append(r.text, o, addedMetadataOf(o)); r.err != nil {
			return r
		}
	}
	return r
}

func (e *encoder) appendYAML(dst []byte, o aggregate.Object) ([]byte, error) {
	var err error
	if e.item, err = e.append(append(e.item[:0], '['), o, addedMetadataOf(o)); err != nil {
		return dst, err
	}
	text, err := yaml.JSONToYAML(escapeForYAML(append(e.item, ']')))
	return append(dst, text...), err
}

// encodeParallel has goroutines encode blocks ahead of what is sent. They are joined
// before it returns.
func (q *request) encodeParallel(ctx context.Context, some []aggregate.Object, take func() []aggregate.Object, send func(encodedBlock) error, failed func() error) error {
	type job struct {
		objects []aggregate.Object
		done    chan encodedBlock
	}
	workers := runtime.GOMAXPROCS(0)
	jobs := make(chan job)
	g, ctx := panicgroup.WithContext(ctx, workers)
	defer func() {
		close(jobs)
		_ = g.Wait() //nolint:errcheck // results have the errors
	}()
	for range workers {
		g.Go(func() error {
			e := q.encoder()
			defer q.release(e)
			for j := range jobs {
				j.done <- e.encodeBlock(j.objects, q.buffers.get())
			}
			return nil
		})
	}
	var pending []chan encodedBlock
	j := job{some, make(chan encodedBlock, 1)}
	for len(j.objects) > 0 || len(pending) > 0 {
		var to chan job
		if len(j.objects) > 0 && len(pending) < 2*workers {
			to = jobs
		}
		var from chan encodedBlock
		if len(pending) > 0 {
			from = pending[0]
		}
		select {
		case to <- j:
			pending = append(pending, j.done)
			j = job{take(), make(chan encodedBlock, 1)}
		case r := <-from:
			if err := send(r); err != nil {
				return err
			}
			pending = pending[1:]
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return failed()
}
