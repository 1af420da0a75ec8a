package main

import (
	"time"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/queryapi"
)

// healthOf returns what the query API says of how federator gets along with members.
func healthOf(manager *clusterinformers.Manager) func(member string) *queryapi.MemberHealth {
	return func(member string) *queryapi.MemberHealth {
		st, ok := manager.Member(member)
		if !ok {
			return nil
		}
		h := &queryapi.MemberHealth{
			State: string(st.State), Reason: string(st.Reason), Message: st.Message, Since: st.Since, Transport: st.Transport,
			Budget: queryapi.MemberBudget(st.Budget), Error: memberError(st.Error, st.ErrorAt), LastError: memberError(st.LastError, st.LastErrorAt),
		}
		if st.Freshness != nil {
			h.Freshness = ageOf(*st.Freshness)
		}
		if a := st.Audit; a != nil {
			h.Audit = &queryapi.MemberAudit{Oldest: ageOf(a.Oldest), OldestFirstTier: ageOf(a.OldestFirstTier), Behind: a.Behind, Unaudited: a.Unaudited, Lost: a.Lost}
			if l := a.Last; l != nil {
				h.Audit.LastLoss = &queryapi.MemberLoss{Time: l.Time, Kind: l.Kind, Namespace: l.Namespace, Differences: l.Differences, Example: l.Example}
			}
		}
		return h
	}
}

func memberError(text string, at *time.Time) *queryapi.MemberError {
	if text == "" || at == nil {
		return nil
	}
	return &queryapi.MemberError{Message: text, Time: *at}
}

func ageOf(d time.Duration) string { return d.Round(time.Second).String() }
