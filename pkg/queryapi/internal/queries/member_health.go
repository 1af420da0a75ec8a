package queries

import (
	"context"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// EveryKind stands for all kinds that there are and will be: who may list it was granted "*".
const EveryKind aggregate.Kind = "*"

// MemberHealth is how federator gets along with a member. Errors and losses name objects of any
// kind: it is for callers who may list everything in the member.
type MemberHealth struct {
	State   string    `json:"state"`             // of the connection, such as Connected
	Reason  string    `json:"reason,omitempty"`  // why it is not Connected, or not written to
	Message string    `json:"message,omitempty"` // the same for people
	Since   time.Time `json:"since"`             // of the state
	// Freshness is the age of what is known of the kind that was heard of longest ago, as an Age is
	// written; "" where none was.
	Freshness string `json:"freshness,omitempty"`
	// Transport is why it is reached by Go's net/http, which costs more a watch; "" where it is not.
	Transport string       `json:"transport,omitempty"`
	Budget    MemberBudget `json:"budget"`
	// Error is the newest error that is not over, LastError the newest of all.
	Error     *MemberError `json:"error,omitempty"`
	LastError *MemberError `json:"lastError,omitempty"`
	Audit     *MemberAudit `json:"audit,omitempty"` // not set before anything is kept up to date
}

// MemberBudget is what is held of a member, as it is charged, and what may be.
type MemberBudget struct {
	Objects    int64 `json:"objects"`
	MaxObjects int64 `json:"maxObjects"`
	Bytes      int64 `json:"bytes"` // of the heap, with what watching costs
	MaxBytes   int64 `json:"maxBytes"`
}

// MemberError is what went wrong, as the member or the network has said it.
type MemberError struct {
	Message string    `json:"message"`
	Time    time.Time `json:"time"`
}

// MemberAudit is how well it is known that what is held of a member is what it has.
type MemberAudit struct {
	// Oldest is the longest time since a kind was proved, OldestFirstTier that of the kinds that are
	// audited most often, as an Age is written.
	Oldest          string `json:"oldest"`
	OldestFirstTier string `json:"oldestFirstTier"`
	Behind          bool   `json:"behind,omitempty"` // one of them exceeds the interval that is configured
	// Unaudited are the kinds that an earlier process has held and that were not proved since: nothing
	// is written to the member before they are.
	Unaudited int `json:"unaudited,omitempty"`
	// Lost is how many objects audits have found to differ since federator started.
	Lost     uint64      `json:"lost,omitempty"`
	LastLoss *MemberLoss `json:"lastLoss,omitempty"`
}

// MemberLoss is what the last audit that found a difference has found.
type MemberLoss struct {
	Time        time.Time      `json:"time"`
	Kind        aggregate.Kind `json:"kind"`
	Namespace   string         `json:"namespace,omitempty"` // "" where the kind was audited in all of them
	Differences map[string]int `json:"differences"`         // objects by cause: missing, extra, version, uid, content
	Example     string         `json:"example,omitempty"`   // cause, namespace and name of one
}

// age writes a duration as answers have it.
func age(d time.Duration) string { return max(0, d).Round(time.Second).String() }

// mayListAll returns what was granted of all that there is in members.
func (q *memberQuery) mayListAll(ctx context.Context, members []string) (*authz.Grants, error) {
	if !q.facts && (!q.details || q.options.Health == nil) {
		return nil, nil
	}
	return q.reader.GrantsIn(ctx, selection.List, EveryKind, q.snapshot, members)
}

// addHealth adds the health of a member, for a caller who may list all of it or not.
func (q *memberQuery) addHealth(info *MemberInfo, mayListAll bool) {
	switch {
	case !q.details || q.options.Health == nil:
	case !mayListAll:
		info.HealthForbidden = "list *"
	default:
		info.Health = q.options.Health(info.Name)
	}
}
