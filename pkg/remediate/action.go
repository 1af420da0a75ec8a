package remediate

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/internal/objects"
)

// Action is an intent on its way to a member, or done there.
type Action struct {
	Name string
	Intent

	Phase                 v1alpha1.ActionPhase
	Message               string // why it is in its phase
	Manager               string // of a Contended one: who owns the fields
	Attempts              int
	BeforeHash, AfterHash string // of the target's content; "" where there is none
	ChangedHash           string // of the fields that it set, as it left them; "" if unknown
	InverseVerb           string // apply, patch or delete; "" when it is irreversible
	Inverse               json.RawMessage
	Irreversible          string // why it is
	WrittenVersion        string // resourceVersion that the write gave
	Started, Ended        time.Time

	withheld         bool   // values of the target are not recorded
	claimedBy, claim string // the tool whose marks the target has, and which; "" for none

	tried         bool   // nothing was written, whatever happens to the target
	recordVersion string // resourceVersion of the record, where the journal keeps versions
}

// written returns the target as the action has left it.
func (a *Action) written() Written {
	return Written{Target: a.Remedy.Target, ResourceVersion: a.WrittenVersion, Deleted: a.Remedy.Action == "delete"}
}

// fields are the fields that the action set; ok is false if they are not recorded.
func (a *Action) fields() (fields objects.Fields, ok bool) {
	change := a.Remedy.Object
	if a.Remedy.Action == "patch" {
		change = a.Remedy.Patch
	}
	fields = objects.FieldsOf(change, a.Inverse)
	return fields, len(fields) > 0
}

// isFinal reports whether an action in this phase has ended. All phases but Writing are
// final: an Action without a phase, or Pending, is read as Writing.
func isFinal(phase v1alpha1.ActionPhase) bool { return phase != v1alpha1.PhaseWriting }

// ErrNoAction is returned for an action that is not recorded.
var ErrNoAction = errors.New("no such action")

var (
	errExists = errors.New("the action is recorded already")
	// errEnded is returned for an action that another process has ended in another phase.
	errEnded = errors.New("the action has ended in another phase")
)

// journal records actions where every process that may act reads them: nothing is
// written to a member without its record. Its methods are safe for concurrent use.
type journal interface {
	// create records a new action. It returns errExists, or errInvalidIntent for an
	// action that can never be recorded.
	create(ctx context.Context, a *Action) error
	// get returns an action, or ErrNoAction.
	get(ctx context.Context, name string) (*Action, error)
	// update records an action's phase: ErrNoAction where the record is gone, errEnded
	// where it has ended in another phase.
	update(ctx context.Context, a *Action) error
	// list returns the actions that have not ended, and those that were written within
	// the longest window of a limit.
	list(ctx context.Context) ([]*Action, error)
	// deleteEnded deletes the actions that ended longer ago than the retention, except the
	// newest as many as keep says, and returns how many it deleted.
	deleteEnded(ctx context.Context, retention time.Duration, keep int) (int, error)
}
