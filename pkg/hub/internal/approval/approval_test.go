package approval_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/internal/approval"
	"federator.dev/federator/test/seed"
)

var (
	now    = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	proven = approval.Proof{Since: now.Add(-24 * time.Hour)}
)

// by returns an Approval that counts for a requirement without groups.
func by(user string, change ...func(*v1alpha1.Approval)) *v1alpha1.Approval {
	a := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Name: "a-" + user, UID: types.UID("uid-" + user), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec:       v1alpha1.ApprovalSpec{By: v1alpha1.UserName(user), Groups: []v1alpha1.GroupName{"sre"}, Expires: metav1.NewTime(now.Add(time.Hour))},
	}
	for _, c := range change {
		c(a)
	}
	return a
}

func everybody(string, []string) (bool, error) { return true, nil }

func count(t *testing.T, req approval.Requirement, proof approval.Proof, list ...*v1alpha1.Approval) approval.Result {
	t.Helper()
	got, err := approval.Count(&req, list, proof, everybody, now)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestCount_EachReason(t *testing.T) {
	req := approval.Requirement{People: 1, Groups: []string{"sre"}, ServiceAccounts: []string{"system:serviceaccount:ci:bot"}, ValidFor: 24 * time.Hour, Authors: []string{"mallory"}, AuthorsProven: true, MustBeProven: true}
	for name, c := range map[string]struct {
		a      *v1alpha1.Approval
		proof  approval.Proof
		state  v1alpha1.ApprovalState
		reason string
	}{
		"counts":               {by("ann"), proven, v1alpha1.ApprovalCounts, ""},
		"listed bot":           {by("system:serviceaccount:ci:bot", func(a *v1alpha1.Approval) { a.Spec.Groups = nil }), proven, v1alpha1.ApprovalCounts, ""},
		"other bot":            {by("system:serviceaccount:ci:other"), proven, v1alpha1.ApprovalIgnored, approval.ServiceAccount},
		"other group":          {by("ann", func(a *v1alpha1.Approval) { a.Spec.Groups = []v1alpha1.GroupName{"dev"} }), proven, v1alpha1.ApprovalIgnored, approval.NotInGroup},
		"author":               {by("mallory"), proven, v1alpha1.ApprovalIgnored, approval.Author},
		"expired":              {by("ann", func(a *v1alpha1.Approval) { a.Spec.Expires = metav1.NewTime(now) }), proven, v1alpha1.ApprovalExpired, ""},
		"valid no longer":      {by("ann", func(a *v1alpha1.Approval) { a.CreationTimestamp = metav1.NewTime(now.Add(-24 * time.Hour)) }), approval.Proof{Since: now.Add(-48 * time.Hour)}, v1alpha1.ApprovalExpired, ""},
		"withdrawn":            {by("ann", func(a *v1alpha1.Approval) { a.DeletionTimestamp = &metav1.Time{Time: now} }), proven, v1alpha1.ApprovalIgnored, approval.Withdrawn},
		"not proven":           {by("ann"), approval.Proof{Why: "there is no policy"}, v1alpha1.ApprovalIgnored, approval.Unproven},
		"older than the proof": {by("ann"), approval.Proof{Since: now.Add(-time.Hour)}, v1alpha1.ApprovalIgnored, approval.Unproven},
	} {
		t.Run(name, func(t *testing.T) {
			got := count(t, req, c.proof, c.a)
			if d := got.Decisions[string(c.a.UID)]; d.State != c.state || d.Reason != c.reason {
				t.Errorf("%+v, want %s %s", d, c.state, c.reason)
			}
			if counts := c.state == v1alpha1.ApprovalCounts; got.Met(&req) != counts {
				t.Errorf("met %v with %+v", got.Met(&req), got.Counted)
			}
		})
	}
}

func TestCount_AsksRBACAtUse(t *testing.T) {
	req := approval.Requirement{People: 1, AuthorsProven: true}
	a := by("ann")
	got, err := approval.Count(&req, []*v1alpha1.Approval{a}, proven, func(user string, groups []string) (bool, error) {
		if user != "ann" || !slices.Equal(groups, []string{"sre"}) {
			t.Errorf("asked for %s in %q", user, groups)
		}
		return false, nil
	}, now)
	if d := got.Decisions[string(a.UID)]; err != nil || d.Reason != approval.NotAllowed || got.Met(&req) {
		t.Errorf("%+v, %v", d, err)
	}
	away := errors.New("the hub is away")
	got, err = approval.Count(&req, []*v1alpha1.Approval{a, by("bob")}, proven, func(user string, _ []string) (bool, error) {
		if user == "ann" {
			return false, away
		}
		return true, nil
	}, now)
	if _, decided := got.Decisions[string(a.UID)]; decided || !errors.Is(err, away) || len(got.Counted) != 1 {
		t.Errorf("an error of the hub: %+v, %v; want no decision on one, and the other counted", got, err)
	}
}

func TestCount_UnprovenAuthorsNeedOnePersonMore(t *testing.T) {
	req := approval.Requirement{People: 2}
	if got := count(t, req, proven, by("ann"), by("bob")); got.Met(&req) {
		t.Error("two people are enough although the author may be one of them")
	}
	if got := count(t, req, proven, by("ann"), by("bob"), by("eve")); !got.Met(&req) {
		t.Error("three people are not enough")
	}
}

func TestCount_ProofOnlyWhereRequired(t *testing.T) {
	req := approval.Requirement{AuthorsProven: true}
	if got := count(t, req, approval.Proof{}, by("ann")); !got.Met(&req) {
		t.Errorf("an acknowledgement where no approval is required: %+v", got.Decisions)
	}
}

func TestOf_DefaultsToProvenNames(t *testing.T) {
	if approval.Of(nil) != nil {
		t.Error("a requirement of nothing")
	}
	r := approval.Of(&v1alpha1.ApprovalRequirement{Required: 2, Groups: []v1alpha1.GroupName{"sre"}})
	if r.People != 2 || !r.MustBeProven || r.ValidFor != 24*time.Hour || r.AuthorsProven {
		t.Errorf("%+v", r)
	}
}

// TestCount_EqualsModel compares random Approvals with the rules in plain words: somebody
// counts who has a valid Approval of their own, and counts once.
func TestCount_EqualsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Of(t), 1)) // A test's.
	users := []string{"ann", "bob", "eve", "system:serviceaccount:ci:bot", "system:serviceaccount:ci:x"}
	for range 5000 {
		req := approval.Requirement{People: 1 + random.IntN(3), MustBeProven: random.IntN(2) == 0, AuthorsProven: random.IntN(2) == 0, ValidFor: time.Duration(random.IntN(3)) * time.Hour}
		if random.IntN(2) == 0 {
			req.Groups = []string{"sre"}
		}
		if random.IntN(2) == 0 {
			req.Authors = []string{"ann"}
		}
		if random.IntN(2) == 0 {
			req.ServiceAccounts = []string{"system:serviceaccount:ci:bot"}
		}
		proof := approval.Proof{Since: now.Add(-time.Duration(random.IntN(4)) * time.Hour)}
		forbidden := users[random.IntN(len(users))]
		var list []*v1alpha1.Approval
		want := map[string]bool{}
		for n := range random.IntN(7) {
			user := users[random.IntN(len(users))]
			age, left := time.Duration(random.IntN(4))*time.Hour, time.Duration(random.IntN(3)-1)*time.Hour
			a := by(user, func(a *v1alpha1.Approval) {
				a.Name, a.UID = fmt.Sprintf("%d", n), types.UID(fmt.Sprintf("%d", n))
				a.CreationTimestamp, a.Spec.Expires = metav1.NewTime(now.Add(-age)), metav1.NewTime(now.Add(left))
				if random.IntN(3) == 0 {
					a.Spec.Groups = nil
				}
			})
			list = append(list, a)
			listed := slices.Contains(req.ServiceAccounts, user)
			inGroup := len(req.Groups) == 0 || len(a.Spec.Groups) > 0
			lasts := left > 0 && (req.ValidFor == 0 || age < req.ValidFor)
			believed := !req.MustBeProven || now.Add(-age).After(proof.Since)
			if lasts && believed && user != forbidden && !slices.Contains(req.Authors, user) && (listed || inGroup && !strings.HasPrefix(user, "system:")) {
				want[user] = true
			}
		}
		got, err := approval.Count(&req, list, proof, func(user string, _ []string) (bool, error) { return user != forbidden, nil }, now)
		if err != nil {
			t.Fatal(err)
		}
		var people []string
		for _, c := range got.Counted {
			people = append(people, c.By)
		}
		for _, p := range people {
			if !want[p] {
				t.Fatalf("%s counts; requirement %+v, Approvals %+v", p, req, list)
			}
		}
		if len(people) != len(want) {
			t.Fatalf("%q count, want %v; requirement %+v", people, want, req)
		}
		needed := req.People
		if !req.AuthorsProven {
			needed++
		}
		if got.Met(&req) != (len(want) >= needed) {
			t.Fatalf("met %v with %d of %d people", got.Met(&req), len(want), needed)
		}
	}
}

// TestCountAll_MeetsEachRequirement: one Approval counts towards several, and what is met ends
// when the first requirement is not met any more.
func TestCountAll_MeetsEachRequirement(t *testing.T) {
	of := func(people int, validFor time.Duration, groups ...string) *approval.Requirement {
		return &approval.Requirement{People: people, Groups: groups, ValidFor: validFor, AuthorsProven: true, MustBeProven: true}
	}
	in := func(group string) func(*v1alpha1.Approval) {
		return func(a *v1alpha1.Approval) { a.Spec.Groups = []v1alpha1.GroupName{v1alpha1.GroupName(group)} }
	}
	ann, bob, carl := by("ann"), by("bob", in("finance")), by("carl", in("other"))
	for name, c := range map[string]struct {
		reqs            []*approval.Requirement
		list            []*v1alpha1.Approval
		given, required int
		met             bool
		until           time.Duration
		counts          string // the Approvals that do
	}{
		"none":                      {[]*approval.Requirement{of(1, 0)}, nil, 0, 1, false, 0, "[]"},
		"no requirement":            {nil, []*v1alpha1.Approval{ann}, 0, 0, false, 0, "[]"},
		"one of both":               {[]*approval.Requirement{of(1, 0, "sre"), of(1, 0, "finance")}, []*v1alpha1.Approval{ann}, 1, 1, false, 0, "[a-ann]"},
		"one for each":              {[]*approval.Requirement{of(1, 0, "sre"), of(1, 90*time.Minute, "finance")}, []*v1alpha1.Approval{ann, bob, carl}, 2, 1, true, 30 * time.Minute, "[a-ann a-bob]"},
		"one for both":              {[]*approval.Requirement{of(1, 0), of(1, 0, "sre")}, []*v1alpha1.Approval{ann}, 1, 1, true, time.Hour, "[a-ann]"},
		"two, and the second least": {[]*approval.Requirement{of(2, 0), of(1, 0, "sre")}, []*v1alpha1.Approval{ann, bob}, 2, 2, true, time.Hour, "[a-ann a-bob]"},
		"more than needed": {
			[]*approval.Requirement{of(1, 0)},
			[]*v1alpha1.Approval{ann, by("dora", func(a *v1alpha1.Approval) { a.Spec.Expires = metav1.NewTime(now.Add(2 * time.Hour)) })},
			2, 1, true, 2 * time.Hour,
			"[a-ann a-dora]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := approval.CountAll(c.reqs, c.list, proven, everybody, now)
			if err != nil {
				t.Fatal(err)
			}
			var until time.Duration
			if !got.Until.IsZero() {
				until = got.Until.Sub(now)
			}
			counts := []string{}
			for _, a := range c.list {
				if got.Decisions[string(a.UID)].State == v1alpha1.ApprovalCounts {
					counts = append(counts, a.Name)
				}
			}
			if len(got.Given) != c.given || got.Required != c.required || got.Met != c.met || until != c.until || fmt.Sprint(counts) != c.counts {
				t.Errorf("%+v, until %s, %v", got, until, counts)
			}
		})
	}
	if got, err := approval.CountAll([]*approval.Requirement{of(1, 0), of(1, 0)}, []*v1alpha1.Approval{ann, bob}, proven, func(user string, _ []string) (bool, error) {
		if user == "ann" {
			return false, errors.New("RBAC is away")
		}
		return true, nil
	}, now); err == nil || len(got.Given) != 1 || got.Given[0].By != "bob" || len(got.Decisions) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
