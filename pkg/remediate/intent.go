package remediate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/objects"
)

// Intent is a correction that a verdict requires.
type Intent struct {
	Binding, Package     string
	Message              string // of the violation
	Source, Commit, Path string // of the policy's package
	Revision             policy.Revision
	Subject              policy.Subject
	Remedy               policy.Remedy

	// Of the target as it was evaluated: "" where it did not exist.
	APIVersion, UID, ResourceVersion string

	DryRun bool   // the write is tried and never done
	Force  bool   // takes over fields of other managers
	ActAs  string // user on the member, "" for federator's own

	// Refused is why it must not be sent, "" when it may be: it contradicts another of the
	// same policy, for example. It gets an outcome that says so.
	Refused string

	OverrideGitOps bool // written although a GitOps controller manages the target

	Reason     string // of a person's request; "" for a policy's correction
	RollbackOf string // name of the Action that this one rolls back

	Acknowledged *Acknowledgement // that it follows, nil for none
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
		fmt.Sprint(i.DryRun, i.Force), i.ActAs, i.RollbackOf,
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	if i.Refused != "" { // what is written once it is not refused any more is another action
		fmt.Fprintf(h, "%d:%s", len(i.Refused), i.Refused)
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
