package zstdbody

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// podEvents are changes of pods in any order: real ones where there are any, else made up.
func podEvents(tb testing.TB, n int) []string {
	tb.Helper()
	var pods []string
	if f, err := os.Open("../../../../../shared/corpus/core_Pod.jsonl"); err == nil {
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			pods = append(pods, lines.Text())
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	events := make([]string, n)
	for i := range events {
		if len(pods) == 0 {
			events[i] = event(fmt.Sprint("pod-", r.IntN(100)), i)
			continue
		}
		pod := strings.Replace(pods[r.IntN(len(pods))], `"resourceVersion":"`, fmt.Sprintf(`"resourceVersion":"%d`, i), 1)
		events[i] = `{"type":"MODIFIED","object":` + pod + "}\n"
	}
	return events
}

// BenchmarkCompress is a watch of pods that are changed in any order, a flush each, with an encoder of its own and with
// the one that is shared.
func BenchmarkCompress(b *testing.B) {
	events := podEvents(b, 4000)
	for name, encoders := range map[string]int{"own": 1, "shared": -1} {
		b.Run(name, func(b *testing.B) {
			p := New(Options{Encoders: encoders})
			w := p.writer(&response{})
			var out bytes.Buffer
			plain, sent, n := 0, 0, 0
			for b.Loop() {
				ev := events[n%len(events)]
				n++
				out.Reset()
				w.compress(&out, []byte(ev))
				plain, sent = plain+len(ev), sent+out.Len()
			}
			b.SetBytes(int64(plain / b.N))
			b.ReportMetric(float64(plain)/float64(sent), "ratio")
		})
	}
}
