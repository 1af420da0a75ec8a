package remediate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
	"federator.dev/federator/pkg/tracing"
)

// Intent is a correction that a verdict requires.
type Intent struct {
	Binding, Package     string
	Message              string // of the violation
	Source, Commit, Path string // of the policy's package
	Revision             policy.Revision
	Subject              policy.Subject
	Remedy               policy.Remedy

	MemberUID string // of the Cluster object of the target's member
	// Of the target as it was evaluated: "" where it did not exist.
	APIVersion, UID, ResourceVersion string

	// Basis is what is known of the target where the subject is judged, if another process judges the target: the text of a
	// policy.Basis, which that process is asked about. "": one process judges both.
	Basis string
	// Unresolved is why it is not known what the target is now, "" if it is: the intent counts, and is not written.
	Unresolved string
	// Parts are the intents that it was combined from, where other processes may have more for its target; nil: none but itself.
	Parts []*Intent

	Force bool   // takes over fields of other managers
	ActAs string // user on the member, "" for federator's own

	// Refused is why it must not be sent, "" when it may be: it contradicts another of the
	// same policy, for example. It gets an outcome that says so.
	Refused string

	OverrideGitOps bool // written although a GitOps controller manages the target
	IgnoreOptOut   bool // written although the target is annotated federator.dev/protect

	Reason     string // of a person's request; "" for a policy's correction
	RollbackOf string // name of the Action that this one rolls back
	// WhileStopped says that it is written although writes are stopped: of a rollback only.
	WhileStopped bool
	// admit is asked right before each request of a rollback; nil: nobody is.
	admit func() error

	Version    string // of the policy that reported the violation
	Former     bool   // it is of the generation that RolloutSpec.Replaces names, which has passed its waves
	Generation string // what the policy rolls out
	Wave       int32  // from 1; 0 for none

	Acknowledged *Acknowledgement // that it follows, nil for none

	Cause *tracing.Change `json:",omitempty"` // of an object, that it comes of; nil where nothing is traced
}

// attributed returns an intent that names the acknowledgement that it follows, and what it is
// rolled out with.
func (s *policyState) attributed(i *Intent, now time.Time) *Intent {
	out := *i
	out.Generation = s.spec.Generation
	if i.Former && s.replaced != nil {
		out.Generation = s.replaced.Generation
	}
	if n, ok := s.waveOf(i.Remedy.Target.Member); ok && (!i.Former || s.replaced != nil && s.replaced.HasWaves()) {
		out.Wave = int32(n + 1) // There are few waves.
	}
	for n := range s.allowances {
		if a := &s.allowances[n]; a.effective(s.spec.Generation, now) {
			out.Acknowledged = &Acknowledgement{Halt: a.Halt, By: a.By, At: a.At}
		}
	}
	return &out
}

// actionName is the name of the intent's Action. The same correction of the same version
// of the same target has the same name, in every process: it is never done twice.
func (i *Intent) actionName() string { return i.nameForVersion(i.ResourceVersion) }

// triedName is the name of the Action that records that the intent cannot be written, or
// must not be. It is the same for all versions of its target.
func (i *Intent) triedName() string { return i.nameForVersion("any") }

func (i *Intent) nameForVersion(version string) string {
	h := sha256.New()
	for _, part := range []string{
		i.Binding, i.Remedy.Target.String(), i.UID, version, i.Remedy.Action, string(i.Remedy.Object), string(i.Remedy.Patch), i.Remedy.Propagation,
		fmt.Sprint(i.Force), i.ActAs, i.RollbackOf,
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	if i.Refused != "" { // what is written once it is not refused any more is another action
		fmt.Fprintf(h, "%d:%s", len(i.Refused), i.Refused)
	}
	if i.OverrideGitOps || i.IgnoreOptOut { // so is what is written although it was not before
		fmt.Fprint(h, i.OverrideGitOps, i.IgnoreOptOut)
	}
	sum := hex.EncodeToString(h.Sum(nil))[:20]
	return dnsLabel(i.Binding) + "-" + sum
}

// repeatName is the name of the intent's nth Action, from 0: the earlier ones have ended,
// and the target has reverted to the evaluated version. It was created and has been
// deleted, or its cluster was restored from a backup.
func (i *Intent) repeatName(n int) string {
	if n == 0 {
		return i.actionName()
	}
	return fmt.Sprintf("%s-%d", i.actionName(), n+1)
}

var notDNS = regexp.MustCompile(`[^a-z0-9]+`)

// dnsLabel makes a text the prefix of a name, at most 40 bytes.
func dnsLabel(s string) string {
	s = strings.Trim(notDNS.ReplaceAllString(strings.ToLower(s), "-"), "-")
	if len(s) > 40 {
		s = strings.Trim(s[:40], "-")
	}
	if s == "" {
		return "action"
	}
	return s
}

// fieldManager is the name under which federator writes, in managedFields.
func (i *Intent) fieldManager() string {
	name := "federator/" + i.Binding
	if len(name) > 128 {
		name = name[:115] + "-" + objects.Hash([]byte(name))[:12]
	}
	return name
}

// errInvalidIntent is returned for an intent that can never be carried out.
var errInvalidIntent = errors.New("the remedy cannot be carried out")

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
	TraceID               string // in hexadecimal; "" where nothing is traced
	AuditID               string // that the requests of the write have in the member's audit log
	Started, Ended        time.Time

	withheld         bool   // values of the target are not recorded
	claimedBy, claim string // the tool whose marks the target has, and which; "" for none

	takesOwn      bool   // the dry run took over the fields of own earlier writes
	tried         bool   // nothing was written, whatever happens to the target
	recordVersion string // resourceVersion of the record, where the journal keeps versions
	recordUID     types.UID
	recordBytes   int64     // of the record, as quotas count them
	created       time.Time // the record
}

// setAuditID gives the action the ID of its write in audit logs: a UUID (version 8 of RFC 9562) that follows from what names the
// action, so that the same history has the same IDs.
func (a *Action) setAuditID() {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%d:%s%d", len(a.MemberUID), a.MemberUID, len(a.Name), a.Name, a.Started.UnixNano()))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	h := hex.EncodeToString(sum[:16])
	a.AuditID = h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
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
	// list returns the actions that have not ended, and those that were written, without
	// patches and inverses.
	list(ctx context.Context) ([]*Action, error)
	// deleteEnded deletes the actions that ended longer ago than the retention, those that
	// were written than the longest window, except the newest as many as keep says. It
	// returns how many it deleted.
	deleteEnded(ctx context.Context, retention, window time.Duration, keep int) (int, error)
}
