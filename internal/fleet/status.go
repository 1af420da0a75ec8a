package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// Status is the response of /members.
type Status struct {
	Revision aggregate.Revision              `json:"revision"`
	Time     time.Time                       `json:"time"`
	Ready    bool                            `json:"ready"`
	Members  []clusterinformers.MemberStatus `json:"members"`
	Continue string                          `json:"continue,omitempty"` // parameter of the next page; "" on the last one
}

// Status returns the members that a query selects.
func (f *Fleet) Status(q clusterinformers.MemberQuery) Status {
	ready, _ := f.Manager.Ready()
	selected, more := f.Manager.Select(q)
	a := Status{
		Revision: f.Index.Snapshot().Revision(), Time: time.Now(), Ready: ready,
		Members: append([]clusterinformers.MemberStatus{}, selected...),
	}
	if more {
		a.Continue = selected[len(selected)-1].Name
	}
	return a
}

// MemberParams returns a query as the parameters of /members.
func MemberParams(q clusterinformers.MemberQuery) url.Values {
	out := url.Values{}
	set := func(name, value string) {
		if value != "" {
			out.Set(name, value)
		}
	}
	set("name", q.Name)
	if q.Selector != nil {
		set("labelSelector", q.Selector.String())
	}
	for _, state := range q.States {
		out.Add("state", string(state))
	}
	set("continue", q.After)
	if q.Limit > 0 {
		set("limit", strconv.Itoa(q.Limit))
	}
	if q.NotReady {
		set("notReady", "true")
	}
	if q.Details {
		set("details", "true")
	}
	return out
}

// ParseMemberParams is the reverse of MemberParams.
func ParseMemberParams(params url.Values) (q clusterinformers.MemberQuery, err error) {
	for name, values := range params {
		value := values[0]
		switch name {
		case "name":
			q.Name = value
		case "continue":
			q.After = value
		case "labelSelector":
			q.Selector, err = labels.Parse(value)
		case "state":
			q.States, err = parseStates(values)
		case "limit":
			if q.Limit, err = strconv.Atoi(value); err == nil && q.Limit < 0 {
				err = errors.New("it is negative")
			}
		case "notReady":
			q.NotReady, err = strconv.ParseBool(value)
		case "details":
			q.Details, err = strconv.ParseBool(value)
		default:
			return q, fmt.Errorf("unknown parameter %q", name)
		}
		if err == nil && len(values) > 1 && name != "state" {
			err = errors.New("it is given more than once")
		}
		if err != nil {
			return q, fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	return q, nil
}

func parseStates(values []string) (out []connection.State, err error) {
	for _, v := range values {
		state, err := connection.ParseState(v)
		if err != nil {
			return nil, err
		}
		out = append(out, state)
	}
	return out, nil
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

// AuditEnd ends the response of /audits, which is a stream of lines: results, and this.
type AuditEnd struct {
	Done  bool   `json:"done"`
	Error string `json:"error,omitempty"`
}

// AuditLine is a line of the response of /audits: a result or, with End, the last one.
type AuditLine struct {
	*clusterinformers.AuditResult `json:",omitempty"`
	End                           *AuditEnd `json:"end,omitempty"`
}
