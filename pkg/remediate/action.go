package remediate

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Phase is where an Action stands.
type Phase string

// The phases of an Action. All but Writing are final.
const (
	Writing    Phase = "Writing"    // recorded, and perhaps written
	Succeeded  Phase = "Succeeded"  // written
	DryRun     Phase = "DryRun"     // it would succeed; nothing was written
	NoOp       Phase = "NoOp"       // it would change nothing
	Superseded Phase = "Superseded" // the target has moved: a newer verdict is on its way
	Contended  Phase = "Contended"  // another field manager owns what it would write
	IsGuarded  Phase = "Protected"  // the target is never written
	Failed     Phase = "Failed"     // refused, or tried too often
	RolledBack Phase = "RolledBack" // written, and taken back
)

// Final reports whether nothing more comes of the action by itself.
func (p Phase) Final() bool { return p != Writing }

// Action is an intent on its way to a member, or done there.
type Action struct {
	Name string
	Intent

	Phase          Phase
	Message        string // why it stands there
	Manager        string // of a Contended one: who owns the fields
	Attempts       int
	Before, After  string // digests of the target's content; "" where there is none
	InverseVerb    string // apply, patch or delete; "" when it cannot be taken back
	Inverse        json.RawMessage
	Irreversible   string // why it cannot be taken back
	Written        string // resourceVersion that the write gave
	Started, Ended time.Time

	tried    bool   // nothing was written, whatever comes of the target
	recorded string // version of the record, where the journal keeps versions
}

// Errors of journals.
var (
	ErrExists   = errors.New("the action is recorded already")
	ErrNoAction = errors.New("there is no such action")
	// ErrEnded is of an action that somebody else has ended in another way.
	ErrEnded = errors.New("the action has ended otherwise")
)

// Journal records actions where every process that may act sees them: nothing is
// written to a member without its record. Its methods are safe for concurrent use.
type Journal interface {
	// Create records a new action, or returns ErrExists, or an ErrIntent where it can
	// never be recorded.
	Create(ctx context.Context, a *Action) error
	// Get returns an action, or ErrNoAction.
	Get(ctx context.Context, name string) (*Action, error)
	// Update records where an action stands: ErrNoAction where there is no record of
	// it any more, ErrEnded where it says that the action ended otherwise.
	Update(ctx context.Context, a *Action) error
	// List returns the actions that have not ended, and those that were written within
	// the longest window of a limit.
	List(ctx context.Context) ([]*Action, error)
}
