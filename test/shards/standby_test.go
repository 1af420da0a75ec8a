package shards

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/shards"
)

// wholeWithin is how long after a process was killed all is known again at the latest: a Lease and what it takes to notice,
// and another one where it was the leader that was killed, which has to be replaced before.
const wholeWithin = 20 * time.Second

// TestShards_Standby: with two processes for each member no read misses anything when one is killed, be it the leader or
// another one.
func TestShards_Standby(t *testing.T) {
	f := newFleet(t, setup{replication: 2})
	never := f.truth()
	f.put(0, "once-a")
	f.put(1, "once-a")
	f.put(2, "once-b")
	began := time.Now()
	for _, s := range f.processes {
		s.start()
	}
	f.exact("at the start")
	f.judged("at the start")
	leader := f.leader()
	// One that has just begun to see the hub takes nobody for lost.
	f.until("the processes have seen the hub for long enough", func() error {
		if left := contact - time.Since(began); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
	for _, s := range f.processes {
		if s != leader {
			f.lose("another one", s, never, wholeWithin)
			break
		}
	}
	f.lose("the leader", leader, never, 2*wholeWithin)
}

// contact is a Lease, and a renewal, and the start.
const contact = 22 * time.Second

// holders is what the map on the hub says.
type holders struct {
	Processes []struct {
		ID string `json:"id"`
	} `json:"processes"`
	Members []struct {
		Name    string `json:"n"`
		Judge   int    `json:"j"`
		Standby int    `json:"s"`
	} `json:"members"`
}

func (f *fleet) held() (held holders, err error) {
	cm, err := f.kube.Hub.Client().CoreV1().ConfigMaps(f.namespace).Get(f.t.Context(), shards.DefaultConfigMap, metav1.GetOptions{})
	if err != nil {
		return held, err
	}
	for _, data := range cm.BinaryData {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return held, err
		}
		if err := json.NewDecoder(z).Decode(&held); err != nil {
			return held, err
		}
	}
	return held, nil
}

// twice waits until all members have two holders, which have read them.
func (f *fleet) twice(what string) {
	f.t.Helper()
	f.until(what+": all members are held twice", func() error {
		held, err := f.held()
		if err != nil {
			return err
		}
		if len(held.Members) != size() {
			return fmt.Errorf("the map has %d members", len(held.Members))
		}
		for _, m := range held.Members {
			if m.Judge == 0 || m.Standby == 0 {
				return fmt.Errorf("%s is not held twice", m.Name)
			}
		}
		return nil
	})
	for _, s := range f.alive() {
		f.until(what+": "+s.name+" is ready", func() error {
			address, err := s.Address("serve")
			if err != nil {
				return err
			}
			req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://"+address+"/readyz", http.NoBody)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", resp.Status, text)
			}
			return err
		})
	}
}

// lose kills a process and starts it again once all is known. It says how long reads and verdicts were not whole.
func (f *fleet) lose(what string, s *shard, never map[string]string, within time.Duration) {
	f.t.Helper()
	f.twice("before " + what + " is killed")
	stop := f.probe(f.t.Context(), never)
	lease, err := f.kube.Hub.Client().CoordinationV1().Leases(f.namespace).Get(f.t.Context(), shards.LeasePrefix+s.name, metav1.GetOptions{})
	f.do(err)
	before, err := f.held()
	f.do(err)
	s.Kill()
	killed := time.Now()
	for i := range f.kube.Members { // what all members have to do with, those that it judged, too
		f.put(i, "once-"+s.name)
	}
	f.t.Logf("%s had renewed its Lease %s before it was killed", s.name, killed.Sub(lease.Spec.RenewTime.Time).Round(time.Millisecond))
	f.judged("after " + what + " was killed")
	whole := time.Since(killed)
	after, err := f.held()
	f.do(err)
	f.t.Logf("the map said %+v, and says %+v", before, after)
	f.exact("after " + what + " was killed")
	var short, old, failed time.Duration // after it was killed, of the last answer
	var answers, shorts, olds, errs int
	for _, a := range stop() {
		if a.of == s {
			continue
		}
		answers++
		after := a.asked.Sub(killed)
		switch {
		case a.err != nil:
			errs, failed = errs+1, max(failed, after)
			f.t.Logf("%s, %s after %s was killed: %v", a.of.name, after, s.name, a.err)
		case !a.whole:
			shorts, short = shorts+1, max(short, after)
		case len(a.old) > 0:
			olds, old = olds+1, max(old, after)
		}
	}
	f.t.Logf("%s, %s, was killed: of %d answers %d were errors (until %s), %d missed objects (until %s), %d had all and said that members are not fresh (until %s); verdicts were whole after %s",
		what, s.name, answers, errs, failed, shorts, short, olds, old, whole)
	if errs > 0 || shorts > 0 {
		f.t.Errorf("reads missed something")
	}
	if whole > within {
		f.t.Errorf("verdicts were whole after %s, want %s", whole, within)
	}
	s.start()
	f.exact("after " + what + " is back")
	f.judged("after " + what + " is back")
}
