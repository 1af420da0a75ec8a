package clusterinformers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// costsFleet, in the environment, is how many kinds the members of a process serve that is
// this test's own, and how many of these they forbid: what federator costs is measured without them.
const costsFleet = "CLUSTERINFORMERS_COSTS_KINDS"

const costsMembers = 20

// costsKinds returns n kinds that are followed.
func costsKinds(n int) (out []sim.Kind) {
	for _, k := range sim.BuiltinKinds() {
		if k.Kind != "Event" && k.Kind != "Lease" && len(out) < n {
			out = append(out, k)
		}
	}
	for i := len(out); i < n; i++ {
		out = append(out, sim.Kind{Group: "costs.example", Kind: fmt.Sprint("Cost", i), Resource: fmt.Sprintf("cost%ds", i), Versions: []string{"v1"}, Namespaced: true})
	}
	return out
}

func TestMain(m *testing.M) {
	var kinds, forbidden int
	if _, err := fmt.Sscan(os.Getenv(costsFleet), &kinds, &forbidden); err == nil {
		if err := serveCosts(costsKinds(kinds), forbidden); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveCosts is the members' process: it prints their kubeconfigs as a line of JSON and does
// what lines say, until there are no more.
func serveCosts(kinds []sim.Kind, forbidden int) error {
	fleet, err := sim.New(sim.Options{Members: costsMembers, Kinds: kinds})
	if err != nil {
		return err
	}
	defer fleet.Close()
	members := fleet.Members()
	files := make([][]byte, len(members))
	for i, m := range members {
		for _, k := range kinds[len(kinds)-forbidden:] {
			m.Forbid(schema.GroupResource{Group: k.Group, Resource: k.Resource})
		}
		if files[i], err = m.Kubeconfig(); err != nil {
			return err
		}
	}
	out := json.NewEncoder(os.Stdout)
	err = out.Encode(files)
	for in := bufio.NewScanner(os.Stdin); err == nil && in.Scan(); {
		if in.Text() == "cut" {
			members[0].Cut()
			err = members[0].Restore()
		}
		err = errors.Join(err, out.Encode([]int{fleet.Watches(), members[0].Requests().Verb("watch") + members[0].Requests().Verb("watchlist")}))
	}
	return err
}

// costs is a manager whose members are another process.
type costs struct {
	*rig
	scopes     int // of a member that are watched
	before     costsUsage
	tell       io.Writer
	told       *bufio.Scanner
	kubeconfig [][]byte
}

type costsUsage struct {
	goroutines, files int
	heap              int64
}

func costsNow(t *testing.T) costsUsage {
	t.Helper()
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, err := os.ReadDir("/proc/self/fd")
	ok(t, err)
	return costsUsage{runtime.NumGoroutine(), len(files), int64(m.HeapAlloc)}
}

// newCosts starts members of so many kinds, of which they forbid some, and follows them.
func newCosts(t *testing.T, kinds, forbidden int) *costs {
	t.Helper()
	c := &costs{scopes: kinds - forbidden}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], "-test.run=^$")
	cmd.Env, cmd.Stderr = append(os.Environ(), fmt.Sprintf("%s=%d %d", costsFleet, kinds, forbidden)), os.Stderr
	in, err := cmd.StdinPipe()
	ok(t, err)
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	c.tell, c.told = in, bufio.NewScanner(out)
	c.told.Buffer(nil, 1<<20)
	c.read(t, &c.kubeconfig)
	c.before = costsNow(t)
	c.rig = newRig(t, sim.Options{}, func(r *rig, _ *clusterinformers.Options) {
		for i, file := range c.kubeconfig {
			r.source.view = append(r.source.view, clusterinformers.Spec{Name: fmt.Sprint("fleet/member-", i), UID: fmt.Sprint("uid-", i), Kubeconfig: file, Trusted: true})
		}
	}).start()
	t.Cleanup(func() {
		c.end()
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the members' process: %v", err)
		}
	})
	c.within(3*patience, "every scope is watched that may be", func() bool {
		open, _ := c.watches("")
		return open == costsMembers*c.scopes && c.count(aggregate.Synced) == open && c.count(aggregate.Forbidden) == costsMembers*forbidden
	})
	return c
}

func (c *costs) read(t *testing.T, into any) {
	t.Helper()
	if !c.told.Scan() {
		t.Fatalf("the members' process has ended: %v", c.told.Err())
	}
	if err := json.Unmarshal(c.told.Bytes(), into); err != nil {
		t.Fatalf("%s: %v", c.told.Text(), err)
	}
}

// watches returns how many are open, and how often the first member was asked for one. By the
// command "cut" its connections are reset before.
func (c *costs) watches(command string) (open, asked int) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.tell, command); err != nil {
		c.t.Fatal(err)
	}
	var got [2]int
	c.read(c.t, &got)
	return got[0], got[1]
}

// count counts the scopes of a state.
func (c *costs) count(state aggregate.State) (n int) {
	for info := range c.index.Snapshot().Scopes("") {
		if info.Status.State == state {
			n++
		}
	}
	return n
}

// series counts the lines of /metrics.
func (c *costs) series() int {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(c.metrics, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return strings.Count(w.Body.String(), "\n")
}

// settled is what the members cost once what the start has needed is gone, and what requests
// under way hold: at most so many bytes of the heap.
func (c *costs) settled(maxHeap int64) (u costsUsage) {
	c.t.Helper()
	maxGoroutines, maxFiles := 6*costsMembers+30, costsMembers*((c.scopes+95)/96+1)
	c.t.Cleanup(func() { c.t.Logf("the last measurement: %+v", u) })
	c.until(fmt.Sprintf("at most %d goroutines, %d descriptors and %d bytes", maxGoroutines, maxFiles, maxHeap), func() bool {
		u = costsNow(c.t)
		u.goroutines, u.files, u.heap = u.goroutines-c.before.goroutines, u.files-c.before.files, u.heap-c.before.heap
		return u.goroutines <= maxGoroutines && u.files <= maxFiles && u.heap <= maxHeap
	})
	return u
}

// TestCosts_FollowTheNumberOfConnections: empty kinds cost no goroutine, no descriptor of their
// own, no line of /metrics, and little memory.
func TestCosts_FollowTheNumberOfConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures, slowly where races are looked for")
	}
	if runtime.GOOS != "linux" {
		t.Skip("descriptors are counted in /proc")
	}
	var usages [2]costsUsage
	var series [2]int
	maxHeap := int64(math.MaxInt64) // 8 KiB for each scope that the first fleet does not have
	for i, kinds := range []int{50, 100} {
		t.Run(fmt.Sprint(kinds, " kinds"), func(t *testing.T) {
			c := newCosts(t, kinds, 0)
			usages[i], series[i] = c.settled(maxHeap), c.series()
			t.Logf("%d members: %+v, %d lines of /metrics; %d bytes a scope", costsMembers, usages[i], series[i], usages[i].heap/int64(costsMembers*kinds))
			if i > 0 {
				return
			}
			maxHeap = usages[0].heap + 50*costsMembers*8<<10
			_, before := c.watches("")
			c.watches("cut")
			again := 0
			c.until("the first member's watches are open again", func() bool {
				open, asked := c.watches("")
				again = asked - before
				return again >= kinds && open == costsMembers*kinds && c.count(aggregate.Synced) == costsMembers*kinds
			})
			if again > kinds {
				t.Errorf("after a cut %d watches were opened for %d scopes", again, kinds)
			}
		})
	}
	var denied costsUsage
	t.Run("50 kinds, and 50 that are forbidden", func(t *testing.T) { denied = newCosts(t, 100, 50).settled(maxHeap) })
	if t.Failed() {
		return
	}
	small, large := usages[0], usages[1]
	if more, connections := large.goroutines-small.goroutines, large.files-small.files; more > connections+10 {
		t.Errorf("%d goroutines more for twice as many kinds, which take %d connections more", more, connections)
	}
	for name, u := range map[string]costsUsage{"an empty": large, "a forbidden": denied} {
		t.Logf("%s scope holds %d bytes", name, (u.heap-small.heap)/(50*costsMembers))
	}
	if denied.files > small.files {
		t.Errorf("forbidden scopes take %d connections", denied.files-small.files)
	}
	if series[0] != series[1] {
		t.Errorf("/metrics has %d lines for 50 kinds and %d for 100", series[0], series[1])
	}
}
