package zstdstream

import (
	"bufio"
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// podEvents are pods in any order: real ones where there are any, else made up.
func podEvents(tb testing.TB, n int) [][]byte {
	tb.Helper()
	var pods [][]byte
	if f, err := os.Open("../../../../../shared/corpus/core_Pod.jsonl"); err == nil {
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			pods = append(pods, bytes.Clone(lines.Bytes()))
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for len(pods) < 100 {
		pods = append(pods, event(r))
	}
	events := make([][]byte, n)
	for i := range events {
		events[i] = pods[r.IntN(len(pods))]
	}
	return events
}

// BenchmarkReadNow reads a watch of pods, an event at a time: as it is sent, and with frames that end after each.
func BenchmarkReadNow(b *testing.B) {
	events := podEvents(b, 1000)
	for name, alone := range map[string]bool{"one frame": false, "a frame each": true} {
		b.Run(name, func(b *testing.B) {
			var out bytes.Buffer
			enc := encoder(b, &out, zstd.WithWindowSize(64<<10), zstd.WithEncoderCRC(false))
			var sent [][]byte
			plain := 0
			for _, ev := range events {
				_, _ = enc.Write(ev)
				if alone {
					enc.Close()
				} else {
					enc.Flush()
				}
				sent = append(sent, bytes.Clone(out.Bytes()))
				plain += len(ev)
				if out.Reset(); alone {
					enc.Reset(&out)
				}
			}
			from := &body{}
			var s *Stream
			p, n := make([]byte, 64<<10), 0
			for b.Loop() {
				if n%len(sent) == 0 {
					s = New(from, nil)
				}
				from.came = append(from.came[:0], sent[n%len(sent)]...)
				n++
				for {
					if _, err := s.ReadNow(p); errors.Is(err, stream.ErrNothing) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.SetBytes(int64(plain / len(events)))
		})
	}
}
