package tracing

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"math"

	"go.opentelemetry.io/otel/trace"
)

// Stage names a span.
type Stage string

// The stages of a change, and of its correction.
const (
	stageChange     Stage = "change"
	stageRead       Stage = "read"
	stageDecode     Stage = "decode"
	stageCommit     Stage = "commit"
	stageBatch      Stage = "batch"
	stageView       Stage = "view"
	stageEvaluation Stage = "evaluation"
	stageCorrection Stage = "correction"
	stageIntent     Stage = "intent"
	stageGate       Stage = "gate"
	stageEcho       Stage = "echo"

	// Record, DryRun, Write and Outcome are what an Attempt does by requests.
	Record  Stage = "Action"
	DryRun  Stage = "dry run"
	Write   Stage = "write"
	Outcome Stage = "outcome"
)

// ids derives IDs.
type ids struct{ high, low uint64 }

func newIDs(installation string) ids {
	sum := sha256.Sum256([]byte("federator trace " + installation))
	return ids{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

// change returns the ID of a change's trace.
func (s ids) change(revision uint64) trace.TraceID { return s.trace(1, revision) }

// batch returns the ID of the trace of the batch up to a revision.
func (s ids) batch(revision uint64) trace.TraceID { return s.trace(2, revision) }

// named returns the ID of the trace of something that no change has caused.
func (s ids) named(name string) trace.TraceID { return s.trace(3, hash(name)) }

func (s ids) trace(space, n uint64) (id trace.TraceID) {
	binary.BigEndian.PutUint64(id[:8], mix(mix(s.high+space)^n))
	binary.BigEndian.PutUint64(id[8:], mix(mix(s.low+space)^n)|1) // all zeros is no ID
	return id
}

// span returns the ID of a trace's nth span of a stage.
func span(of trace.TraceID, stage Stage, n uint64) (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], mix(binary.BigEndian.Uint64(of[8:])^mix(hash(string(stage))^n))|1)
	return id
}

func hash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text)) // which never fails
	return h.Sum64()
}

// mix is the finalizer of SplitMix64: a bijection whose output looks random (Steele, Lea and Flood, "Fast
// splittable pseudorandom number generators", 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sampler keeps a ratio of traces by their IDs, the same ones as OpenTelemetry's TraceIDRatioBased.
type sampler struct{ bound uint64 }

func newSampler(ratio float64) sampler {
	if ratio >= 1 {
		return sampler{math.MaxUint64}
	}
	return sampler{uint64(ratio * (1 << 63))}
}

func (s sampler) keeps(id trace.TraceID) bool { return binary.BigEndian.Uint64(id[8:])>>1 < s.bound }
