package columns_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/seed"
)

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// randomPod is a pod as API servers admit them, in states that its printer tells apart.
func randomPod(rng *rand.Rand, i int) string {
	object := func(fields ...string) string {
		var out []string
		for _, f := range fields {
			if f != "" && rng.IntN(5) > 0 {
				out = append(out, f)
			}
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	list := func(n int, of func(i int) string) string {
		var out []string
		for i := range n {
			out = append(out, of(i))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	reason := func() string {
		return pick(rng, `"reason":"Completed"`, `"reason":"Error"`, `"reason":"CrashLoopBackOff"`, `"reason":"PodInitializing"`, `"reason":""`, `"reason":"a \"quote\""`, "", "")
	}
	state := func() string {
		switch rng.IntN(5) {
		case 0:
			return `"state":{}`
		case 1:
			return `"state":{"waiting":` + object(reason(), `"message":"x"`) + `}`
		case 2:
			return `"state":{"running":{"startedAt":"2026-01-02T03:04:05Z"}}`
		}
		return `"state":{"terminated":` + object(reason(), fmt.Sprintf(`"exitCode":%d`, rng.IntN(3)), fmt.Sprintf(`"signal":%d`, rng.IntN(2)*9)) + `}`
	}
	status := func(i int) string {
		return object(fmt.Sprintf(`"name":"c%d"`, i), fmt.Sprintf(`"restartCount":%d`, rng.IntN(4)), fmt.Sprintf(`"ready":%t`, rng.IntN(2) == 0),
			pick(rng, `"started":null`, `"started":true`, `"started":false`), state(), pick(rng, `"lastState":{"terminated":{"exitCode":1,"finishedAt":"2026-01-02T03:04:05Z"}}`, `"lastState":{}`))
	}
	conditions := list(rng.IntN(5), func(int) string {
		return object(`"type":"`+pick(rng, "Ready", "Initialized", "PodScheduled", "gate/a", "gate/b")+`"`, `"status":"`+pick(rng, "True", "False", "Unknown")+`"`, pick(rng, `"reason":"SchedulingGated"`, `"reason":"x"`))
	})
	deleted := ""
	if rng.IntN(5) == 0 {
		deleted = `,"deletionTimestamp":"2026-01-02T03:04:05Z"`
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p%d","namespace":"x"%s},"spec":%s,"status":%s}`, i, deleted,
		object(`"nodeName":"`+pick(rng, "n1", "n2", "")+`"`, `"containers":`+list(rng.IntN(4), func(i int) string { return fmt.Sprintf(`{"name":"c%d","image":"i"}`, i) }),
			`"initContainers":`+list(rng.IntN(4), func(i int) string {
				return object(fmt.Sprintf(`"name":"c%d"`, i), `"restartPolicy":"Always"`, `"image":"i"`)
			}),
			`"readinessGates":`+list(rng.IntN(3), func(int) string { return object(`"conditionType":"` + pick(rng, "gate/a", "gate/b", "gate/c") + `"`) })),
		object(`"phase":"`+pick(rng, "Running", "Pending", "Succeeded", "Failed", "")+`"`, pick(rng, `"reason":"NodeLost"`, `"reason":"Evicted"`, "", ""), pick(rng, `"nominatedNodeName":"n3"`, ""),
			pick(rng, `"podIP":"10.0.0.1"`, `"podIP":""`, ""), `"podIPs":`+list(rng.IntN(3), func(i int) string { return object(fmt.Sprintf(`"ip":"10.0.0.%d"`, i+1)) }),
			`"conditions":`+conditions, `"initContainerStatuses":`+list(rng.IntN(4), status), `"containerStatuses":`+list(rng.IntN(4), status)))
}

// TestSet_PodsAreWhatTheirPrinterSays: random pods, and real ones where the corpus is.
func TestSet_PodsAreWhatTheirPrinterSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	var list []string
	for i := range 5_000 {
		list = append(list, randomPod(rng, i))
	}
	if text, err := os.ReadFile(filepath.Join("../../../../../shared/corpus", "core_Pod.jsonl")); err == nil {
		i := 0
		for line := range strings.Lines(string(text)) {
			list = append(list, strings.Replace(line, `"name":"`, fmt.Sprintf(`"name":"x%d-`, i), 1))
			i++
		}
	}
	w := newWorld(t, map[aggregate.Kind][]string{pods: list})
	set, err := w.set(t, pods, "", true)
	ok(t, err)
	resource, _ := w.view.Kind(pods)
	snapshot := w.index.Snapshot()
	e := set.Encoder(snapshot.Member)
	text, err := rows.AppendHeader(nil, &rows.Header{Metadata: rows.Metadata{ResourceVersion: "1"}, Columns: set.Columns()})
	ok(t, err)
	objects, err := snapshot.List(aggregate.Query{Kind: pods})
	ok(t, err)
	var bodies [][]byte
	for o := range objects {
		body, err := o.AppendBody(nil)
		ok(t, err)
		bodies = append(bodies, body)
		text, err = e.Append(text, o, body)
		ok(t, err)
	}
	in, err := rows.NewReader(strings.NewReader(string(rows.AppendEnd(text, len(bodies)))))
	ok(t, err)
	for _, body := range bodies {
		row, err := in.Next()
		ok(t, err)
		printed, err := resource.Row(body)
		ok(t, err)
		if printed.Cells[1] == "<invalid>" { // no API server admits it, and some of its fields are not read
			continue
		}
		for i, cell := range []int{1, 2, 3, 5, 6, 7, 8} {
			want := fmt.Sprint(printed.Cells[cell])
			if cell == 3 {
				want, _, _ = strings.Cut(want, " ")
			}
			got := "<none>"
			if c := row.Cells[len(rows.Fixed)+i]; cell == 3 {
				got = string(c)
			} else if c != nil {
				ok(t, json.Unmarshal(c, &got))
			}
			if got != want {
				t.Fatalf("%s is %q, want %q: %s", set.Columns()[len(rows.Fixed)+i].Name, got, want, body)
			}
		}
	}
}
