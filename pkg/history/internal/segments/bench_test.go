package segments

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// fleet makes entries as those of a fleet: objects of some kinds in some members, of which few change
// often, with field changes as JSON of 300 to 600 bytes.
type fleet struct {
	rng     *rand.Rand
	objects int
	n       int64
}

func uuidOf(n uint64) string {
	r := rand.New(rand.NewPCG(n, 99))
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", r.Uint32(), r.Uint32N(1<<16), r.Uint32N(1<<12), r.Uint32N(1<<12), r.Uint64N(1<<48))
}

type change struct {
	Path   string `json:"path"`
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
}

type transition struct {
	Key        string    `json:"key"`
	Transition string    `json:"transition"`
	Version    string    `json:"resourceVersion"`
	Trace      string    `json:"trace"`
	Observed   time.Time `json:"observed"`
	Member     time.Time `json:"memberTime"`
	Changes    []change  `json:"changes"`
}

var kinds = []string{"Pod", "Pod", "Pod", "Pod", "Deployment.apps", "ReplicaSet.apps", "Node", "PersistentVolumeClaim"}

// entry is that of some object. Most changes are of few objects.
func (f *fleet) entry() Entry {
	f.n++
	o := uint64(f.rng.IntN(f.objects))
	if f.rng.IntN(2) == 0 {
		o %= uint64(f.objects/20 + 1)
	}
	return f.of(o)
}

func (f *fleet) of(o uint64) Entry {
	kind := kinds[o%8]
	app := o / 8 % 200
	at := time.UnixMilli(1_780_000_000_000 + f.n*500/1000).UTC()
	e := Entry{
		Revision: 1<<26 + f.n, Member: fmt.Sprintf("fleet/eu-west-%d", o%50), Kind: kind,
		Namespace: fmt.Sprintf("team-%d", app%40), Name: fmt.Sprintf("service-%d", app), UID: uuidOf(o),
	}
	t := transition{Transition: "Changed", Version: strconv.FormatInt(7_000_000+f.n*3, 10), Trace: fmt.Sprintf("%016x%016x", f.rng.Uint64(), f.rng.Uint64()), Observed: at, Member: at.Truncate(time.Second)}
	t.Key = e.Member + "/" + e.UID + "/" + t.Version
	switch kind {
	case "Pod":
		e.Name = fmt.Sprintf("service-%d-%x-%05x", app, o/1600%0xffff+0x59bf, o%0xfffff)
		ready := f.n%2 == 0
		t.Changes = []change{
			{"status.phase", "Pending", "Running"},
			{`status.conditions["Ready"]`, map[string]any{"status": fmt.Sprint(!ready), "reason": "ContainersNotReady"}, map[string]any{"status": fmt.Sprint(ready), "lastTransitionTime": at.Truncate(time.Second)}},
		}
	case "Node":
		e.Namespace, e.Name = "", fmt.Sprintf("ip-10-%d-%d-%d.eu-west-1.compute.internal", o/65536%256, o/256%256, o%256)
		t.Changes = []change{{`status.conditions["MemoryPressure"].status`, "False", "True"}, {"metadata.labels[\"topology.kubernetes.io/zone\"]", "eu-west-1a", "eu-west-1b"}}
	default:
		t.Changes = []change{
			{"spec.replicas", f.n % 7, f.n%7 + 1},
			{"status.readyReplicas", f.n % 7, f.n % 5},
			{"status.updatedReplicas", f.n % 6, f.n % 4},
			{"spec.template.spec.containers[0].image", fmt.Sprintf("registry.example.com/team-%d/service-%d:v1.%d.%d", app%40, app, f.n%9, f.n%50), fmt.Sprintf("registry.example.com/team-%d/service-%d:v1.%d.%d", app%40, app, f.n%9, f.n%50+1)},
		}
	}
	e.Payload, _ = json.Marshal(t)
	return e
}

// batches makes n entries in batches of some.
func (f *fleet) batches(n, of int) (out [][]Entry, bytes int64) {
	for n > 0 {
		batch := make([]Entry, min(n, of))
		for i := range batch {
			batch[i] = f.entry()
			bytes += int64(len(batch[i].Payload))
		}
		out, n = append(out, batch), n-len(batch)
	}
	return out, bytes
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// watchHeap returns what returns by how much the heap, with garbage, has grown at most.
func watchHeap() (stop func() int64) {
	before, most, end := heap(), int64(0), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(2 * time.Millisecond):
				sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
				metrics.Read(sample)
				most = max(most, int64(sample[0].Value.Uint64())-before)
			}
		}
	}()
	return func() int64 {
		close(end)
		<-ended
		return most
	}
}

// BenchmarkAppendAndSeal reports CPU time and bytes on disk of an entry, appended in batches of 100
// (2,000 a second, 20 batches) and sealed.
func BenchmarkAppendAndSeal(b *testing.B) {
	for _, key := range [][]byte{nil, make([]byte, 32)} {
		b.Run(fmt.Sprintf("encrypted=%t", key != nil), func(b *testing.B) {
			f := &fleet{rng: rand.New(rand.NewPCG(1, 1)), objects: 200_000}
			var appended, sealed time.Duration
			var onDisk, payloads int64
			entries, peak := 0, int64(0)
			for b.Loop() {
				batches, bytes := f.batches(200_000, 100)
				l, err := Open(Options{Directory: b.TempDir(), Key: key})
				if err != nil {
					b.Fatal(err)
				}
				runtime.GC()
				from := cpu()
				for _, batch := range batches {
					if _, err := l.Append(batch); err != nil {
						b.Fatal(err)
					}
				}
				appended += cpu() - from
				if err := l.rotate(); err != nil {
					b.Fatal(err)
				}
				from = cpu()
				w, err := newSealer(l)
				if err != nil {
					b.Fatal(err)
				}
				stop := watchHeap()
				l.sealAll(b.Context(), w)
				sealed += cpu() - from
				peak = max(peak, stop())
				onDisk, payloads, entries = onDisk+l.Status().Bytes, payloads+bytes, entries+200_000
				if st := l.Status(); st.Unsealed > 0 || st.Problem != nil {
					b.Fatalf("%+v", st)
				}
				l.Close()
			}
			b.ReportMetric(float64(appended.Nanoseconds())/float64(entries)/1000, "append-µs/entry")
			b.ReportMetric(float64(sealed.Nanoseconds())/float64(entries)/1000, "seal-µs/entry")
			b.ReportMetric(float64(onDisk)/float64(entries), "disk-B/entry")
			b.ReportMetric(float64(peak)/(1<<20), "seal-peak-MiB")
			b.ReportMetric(float64(payloads)/float64(entries), "payload-B/entry")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkSteady appends 2,000 entries a second, an op each, in batches of 20 ms, synced each second
// and sealed meanwhile, and reports the CPU time of the process.
func BenchmarkSteady(b *testing.B) {
	f := &fleet{rng: rand.New(rand.NewPCG(1, 1)), objects: 200_000}
	l, err := Open(Options{Directory: b.TempDir(), SegmentBytes: 4 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var used, slowest time.Duration
	entries := 0
	for b.Loop() {
		batches, _ := f.batches(2000, 40)
		made := cpu()
		for _, batch := range batches {
			<-tick.C
			from := time.Now()
			if _, err := l.Append(batch); err != nil {
				b.Fatal(err)
			}
			slowest = max(slowest, time.Since(from))
		}
		if err := l.Sync(); err != nil {
			b.Fatal(err)
		}
		used, entries = used+cpu()-made, entries+2000
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(used.Nanoseconds())/1000/float64(entries), "CPU-µs/entry")
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-append-ms")
	b.ReportMetric(float64(l.Status().Segments), "segments")
}

// BenchmarkLookup reads the history of objects out of 10 million entries, a page of at most 500. It
// takes minutes to make these; FEDERATOR_BENCH_HISTORY is a directory for them, which is kept.
func BenchmarkLookup(b *testing.B) {
	dir := os.Getenv("FEDERATOR_BENCH_HISTORY")
	if dir == "" {
		b.Skip("FEDERATOR_BENCH_HISTORY names no directory")
	}
	entries := 10_000_000
	if n, err := strconv.Atoi(os.Getenv("FEDERATOR_BENCH_HISTORY_ENTRIES")); err == nil {
		entries = n
	}
	for _, objects := range []int{20_000, 1_000_000} {
		b.Run(fmt.Sprintf("objects=%d", objects), func(b *testing.B) { benchmarkLookup(b, fmt.Sprint(dir, "/", objects), entries, objects) })
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkPages reads the newest 500 entries of other questions, at random places in BenchmarkLookup's
// entries.
func BenchmarkPages(b *testing.B) {
	dir := os.Getenv("FEDERATOR_BENCH_HISTORY")
	if dir == "" {
		b.Skip("FEDERATOR_BENCH_HISTORY names no directory")
	}
	l, err := Open(Options{Directory: dir + "/1000000"})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	last := l.Status().Last.Position
	f := &fleet{rng: rand.New(rand.NewPCG(2, 2)), objects: 1_000_000}
	for name, q := range map[string]func(e *Entry) Query{
		"of=all":              func(*Entry) Query { return Query{} },
		"of=kind,name":        func(e *Entry) Query { return Query{Kind: e.Kind, Name: e.Name} },
		"of=namespace":        func(e *Entry) Query { return Query{Namespace: e.Namespace} },
		"of=member,namespace": func(e *Entry) Query { return Query{Member: e.Member, Namespace: e.Namespace} },
		"of=member":           func(e *Entry) Query { return Query{Member: e.Member} },
		"of=uid":              func(e *Entry) Query { return Query{UID: e.UID} },
	} {
		b.Run(name, func(b *testing.B) {
			var used []time.Duration
			found := 0
			for b.Loop() {
				e := f.entry()
				ask := q(&e)
				ask.Backward, ask.Before = true, 1+f.rng.Uint64N(last)
				from, n := cpu(), 0
				for _, err := range l.Read(ask) {
					if err != nil {
						b.Fatal(err)
					}
					if n++; n == 500 {
						break
					}
				}
				used, found = append(used, cpu()-from), found+n
			}
			reportTimes(b, "CPU-ms", used)
			b.ReportMetric(float64(found)/float64(len(used)), "entries/page")
		})
	}
	b.Run("in-order", func(b *testing.B) {
		entries := 0
		from := cpu()
		for b.Loop() {
			for _, err := range l.Read(Query{After: f.rng.Uint64N(last - 500_000)}) {
				if err != nil {
					b.Fatal(err)
				}
				if entries++; entries%500_000 == 0 {
					break
				}
			}
		}
		b.ReportMetric(float64((cpu()-from).Nanoseconds())/1000/float64(entries), "CPU-µs/entry")
	})
}

func reportTimes(b *testing.B, unit string, times []time.Duration) {
	slices.Sort(times)
	at := func(p float64) float64 { return float64(times[int(p*float64(len(times)-1))].Microseconds()) / 1000 }
	b.ReportMetric(at(0.5), "p50-"+unit)
	b.ReportMetric(at(0.99), "p99-"+unit)
	b.ReportMetric(at(1), "max-"+unit)
}

func benchmarkLookup(b *testing.B, dir string, entries, objects int) {
	before := heap()
	opening := time.Now()
	l, err := Open(Options{Directory: dir})
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("opened in %s", time.Since(opening))
	defer l.Close()
	fillLog(b, l, &fleet{rng: rand.New(rand.NewPCG(1, 1)), objects: objects}, entries)
	st := l.Status()
	held := heap() - before
	rng := rand.New(rand.NewPCG(2, 2))
	f := &fleet{rng: rng, objects: objects}
	var took, used []time.Duration
	found := 0
	for b.Loop() {
		e := f.entry() // objects that change often are asked for often
		q := Query{Member: e.Member, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, Backward: true}
		from, fromCPU := time.Now(), cpu()
		n := 0
		for _, err := range l.Read(q) {
			if err != nil {
				b.Fatal(err)
			}
			if n++; n == 500 {
				break
			}
		}
		took, used, found = append(took, time.Since(from)), append(used, cpu()-fromCPU), found+n
	}
	reportTimes(b, "ms", took)
	reportTimes(b, "CPU-ms", used)
	b.ReportMetric(float64(found)/float64(len(took)), "entries/page")
	b.ReportMetric(float64(st.Bytes)/float64(st.Last.Position), "disk-B/entry")
	b.ReportMetric(float64(held)/(1<<20), "heap-MiB")
	b.ReportMetric(float64(st.Segments), "segments")
}

// fillLog appends until a log has some entries, and seals it.
func fillLog(b *testing.B, l *Log, f *fleet, entries int) {
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	f.n = int64(l.Status().Last.Position)
	for int(l.Status().Last.Position) < entries {
		batches, _ := f.batches(100_000, 1000)
		for _, batch := range batches {
			if _, err := l.Append(batch); err != nil {
				b.Fatal(err)
			}
		}
		for l.Status().Unsealed > 2 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	for l.Status().Unsealed > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
