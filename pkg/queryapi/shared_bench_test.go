package queryapi_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/internal/cputime"
)

// BenchmarkShared_List is a list of 10,000 objects of 4 processes beside that of one, all in this test's process:
// the processor time of all of them counts.
func BenchmarkShared_List(b *testing.B) {
	f := share(b, 4, nil)
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("a/eu-%02d", i))
	}
	f.join(names...)
	env := make([]string, 60)
	for i := range env {
		env[i] = fmt.Sprintf("variable-%d-of-the-container=%x", i, i*2654435761)
	}
	value := strings.Join(env, " ")
	for i, m := range names {
		for j := range 100 {
			f.put(7, sharedObject{m, "Pod", "blue", fmt.Sprintf("pod-%d-%d", i, j), "a", value})
		}
	}
	list := func(p *process, client *http.Client) (time.Duration, int64) {
		began := cputime.Process()
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://"+p.Address+"/fleet/api/v1/pods", http.NoBody)
		f.must(err)
		r.Header.Set("Authorization", "Bearer "+p.Token())
		r.Header.Set("Accept-Encoding", "identity")
		resp, err := client.Do(r)
		f.must(err)
		n, err := io.Copy(io.Discard, resp.Body)
		f.must(err)
		resp.Body.Close()
		return cputime.Process() - began, n
	}
	whole, shared := f.whole.Client(b), f.processes[0].Client(b)
	_, want := list(f.whole, whole)
	if _, got := list(f.processes[0], shared); got != want {
		b.Fatalf("%d bytes, and %d of one process", got, want)
	}
	var one, four time.Duration
	for b.Loop() {
		took, _ := list(f.whole, whole)
		one += took
		took, _ = list(f.processes[0], shared)
		four += took
	}
	b.ReportMetric(float64(four)/float64(one), "cpu-ratio")
	b.ReportMetric(one.Seconds()*1e3/float64(b.N), "cpu-ms/one")
	b.ReportMetric(four.Seconds()*1e3/float64(b.N), "cpu-ms/four")
	b.ReportMetric(float64(want)/1e6, "MB")
}
