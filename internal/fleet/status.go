package fleet

import (
	"context"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// Status is the response of /members.
type Status struct {
	Revision aggregate.Revision              `json:"revision"`
	Time     time.Time                       `json:"time"`
	Ready    bool                            `json:"ready"`
	Members  []clusterinformers.MemberStatus `json:"members"`
}

// Status returns the members, with their scopes if details is true.
func (f *Fleet) Status(details bool) Status {
	ready, _ := f.Manager.Ready()
	a := Status{
		Revision: f.Index.Snapshot().Revision(), Time: time.Now(), Ready: ready,
		Members: []clusterinformers.MemberStatus{},
	}
	for _, m := range f.Manager.Members() {
		if !details {
			m.Details = nil
		}
		a.Members = append(a.Members, m)
	}
	slices.SortFunc(a.Members, func(a, b clusterinformers.MemberStatus) int { return strings.Compare(a.Name, b.Name) })
	return a
}

// WaitReady waits until every member has synced or been given up on.
func (f *Fleet) WaitReady(ctx context.Context, failed <-chan error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, _ := f.Manager.Ready(); ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-tick.C:
		}
	}
}
