package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// folding folds some records of one second each, and returns lines of what differs.
func folding(t *testing.T, records ...Record) (lines []string, all []Record) {
	t.Helper()
	for i := range records {
		r := &records[i]
		if r.Time.IsZero() {
			r.Time = at(100 + i)
		}
		if r.Key == "" {
			r.Key = fmt.Sprint(i)
		}
	}
	all = foldOf(t, records, at(100), at(200), false).Records()
	for i := range all {
		r := &all[i]
		line := []string{string(r.Type), r.Transition, string(r.Kind), r.Name, r.Policy, r.Violation, r.Was, r.Exemption, r.Message}
		for _, c := range r.Changes {
			line = append(line, fmt.Sprintf("%s:%s>%s", c.Path, c.Before, c.After))
		}
		if r.More > 0 {
			line = append(line, fmt.Sprintf("and %d", r.More))
		}
		if r.Net != nil && r.Net.Incomplete {
			line = append(line, "?")
		}
		lines = append(lines, strings.Join(slices.DeleteFunc(line, func(s string) bool { return s == "" }), " "))
	}
	return lines, all
}

func TestFold_OfVerdicts(t *testing.T) {
	found := func(transition, what string, since int) Record {
		return Record{Type: Verdict, Transition: transition, Member: "m", MemberUID: "m", Kind: "Pod", Name: "web", Policy: "p", Violation: what, violation: uint64(len(what)) + 1, FirstSeen: new(at(since))}
	}
	with := func(r Record, exempt, exemption string) Record {
		r.Exempt, r.Exemption = exempt, exemption
		return r
	}
	failed := func(transition, message string, since int) Record {
		r := found(transition, "", since)
		r.violation, r.Message = 0, message
		return r
	}
	for name, c := range map[string]struct {
		records []Record
		want    []string
	}{
		"one that opens":                         {[]Record{found(Opened, "a", 100)}, []string{"Verdict Opened Pod web p a"}},
		"one that closes":                        {[]Record{found(Closed, "a", 50)}, []string{"Verdict Closed Pod web p a"}},
		"one that opens and closes":              {[]Record{found(Opened, "a", 100), found(Closed, "a", 100)}, nil},
		"one that opens and changes":             {[]Record{found(Opened, "a", 100), found(Changed, "a", 100)}, []string{"Verdict Opened Pod web p a"}},
		"one that changes and closes":            {[]Record{found(Changed, "a", 50), found(Closed, "a", 50)}, []string{"Verdict Closed Pod web p a"}},
		"one that changes":                       {[]Record{found(Changed, "a", 50), found(Changed, "a", 50)}, []string{"Verdict Changed Pod web p a"}},
		"one that closes and opens again":        {[]Record{found(Closed, "a", 50), found(Opened, "a", 101)}, []string{"Verdict Changed Pod web p a"}},
		"two of one object":                      {[]Record{found(Opened, "a", 100), found(Closed, "bc", 50)}, []string{"Verdict Opened Pod web p a", "Verdict Closed Pod web p bc"}},
		"one that was open and is found again":   {[]Record{found(Opened, "a", 50)}, nil},
		"one that opened in the first second":    {[]Record{found(Opened, "a", 100)}, []string{"Verdict Opened Pod web p a"}},
		"one that was open, found, and closes":   {[]Record{found(Opened, "a", 50), found(Closed, "a", 50)}, []string{"Verdict Closed Pod web p a"}},
		"one that becomes exempt":                {[]Record{with(found(Changed, "a", 50), "why", ExemptionBegan)}, []string{"Verdict Changed Pod web p a Began"}},
		"one that is exempt for a while":         {[]Record{with(found(Changed, "a", 50), "why", ExemptionBegan), with(found(Changed, "a", 50), "", ExemptionEnded)}, []string{"Verdict Changed Pod web p a"}},
		"one that opens exempt":                  {[]Record{found(Opened, "a", 100), with(found(Changed, "a", 100), "why", ExemptionBegan)}, []string{"Verdict Opened Pod web p a"}},
		"an evaluation that fails":               {[]Record{failed(Failed, "x", 100)}, []string{"Verdict Failed Pod web p x"}},
		"one that failed":                        {[]Record{failed(Known, "", 50)}, []string{"Verdict Known Pod web p"}},
		"one that fails for a while":             {[]Record{failed(Failed, "x", 100), failed(Known, "", 100)}, nil},
		"one that fails in another way":          {[]Record{failed(Failed, "x", 50), failed(Failed, "y", 50)}, []string{"Verdict Changed Pod web p y"}},
		"one that fails, and hides a violation":  {[]Record{failed(Failed, "x", 100), found(Closed, "a", 50)}, []string{"Verdict Failed Pod web p x", "Verdict Closed Pod web p a"}},
		"in a gap of what cannot be written":     {[]Record{found(Opened, "a", 100), {Type: Gap, Transition: "Gap", To: new(at(150))}}, []string{"Gap Gap", "Verdict Opened Pod web p a ?"}},
		"in a gap of verdicts":                   {[]Record{found(Opened, "a", 100), {Type: Gap, Transition: "Gap", Key: "gap/verdicts/x", To: new(at(150))}}, []string{"Gap Gap", "Verdict Opened Pod web p a ?"}},
		"beside a gap of objects":                {[]Record{found(Opened, "a", 100), {Type: Gap, Transition: "Gap", Member: "m", MemberUID: "m", Kind: "Pod", To: new(at(150))}}, []string{"Gap Gap Pod", "Verdict Opened Pod web p a"}},
		"before a gap that was":                  {[]Record{found(Opened, "a", 100), {Type: Gap, Transition: "Gap", To: new(at(99)), From: new(at(50))}}, []string{"Verdict Opened Pod web p a"}},
		"in a gap that was recorded later":       {[]Record{found(Opened, "a", 100), {Type: Gap, Transition: "Gap", Time: at(300), From: new(at(190)), To: new(at(300))}}, []string{"Gap Gap", "Verdict Opened Pod web p a ?"}},
		"before a gap that began later":          {[]Record{found(Opened, "a", 100), {Type: Gap, Transition: "Gap", Time: at(300), From: new(at(200)), To: new(at(300))}}, []string{"Verdict Opened Pod web p a"}},
		"in a gap of which it is not known when": {[]Record{found(Opened, "a", 100), {Type: Gap, Transition: "Gap", Time: at(300)}}, []string{"Gap Gap", "Verdict Opened Pod web p a ?"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := folding(t, c.records...); !slices.Equal(got, c.want) {
				t.Errorf("folded is %q, want %q", got, c.want)
			}
		})
	}
}

func TestFold_OfScopesAndMembers(t *testing.T) {
	scope := func(was, is string) Record {
		return Record{Type: Scope, Transition: is, Was: was, Member: "m", MemberUID: "m", Kind: "Pod"}
	}
	member := func(transition string, changes ...Change) Record {
		return Record{Type: Member, Transition: transition, Member: "m", MemberUID: "m", Changes: changes}
	}
	version := func(before, after string) Change {
		return Change{Path: "version", Before: text(before), After: text(after)}
	}
	object := func(transition string, before, after string) Record {
		return Record{Type: Object, Transition: transition, Member: "m", MemberUID: "m", Kind: "Pod", Name: "web", UID: "u", Changes: []Change{{Path: "p", Before: text(before), After: text(after)}}}
	}
	synced, stale := aggregate.Synced.String(), aggregate.Stale.String()
	for name, c := range map[string]struct {
		records []Record
		want    []string
	}{
		"a scope that turns stale":                      {[]Record{scope(synced, stale)}, []string{"Scope Stale Pod Synced"}},
		"a scope that was stale for a while":            {[]Record{scope(synced, stale), scope(stale, synced)}, nil},
		"a scope that was":                              {[]Record{scope(stale, synced)}, []string{"Scope Synced Pod Stale"}},
		"a scope that is loaded and read":               {[]Record{scope("", synced)}, nil},
		"a scope that is loaded and forbidden":          {[]Record{scope("", "Forbidden")}, []string{"Scope Forbidden Pod"}},
		"a scope that is new":                           {[]Record{scope("Unknown", "Syncing"), scope("Syncing", synced)}, []string{"Scope Synced Pod Unknown"}},
		"a scope that is new and removed":               {[]Record{scope("Unknown", synced), scope(synced, Removed)}, nil},
		"objects of a scope that is removed":            {[]Record{object(Changed, "a", "b"), scope(synced, Removed)}, []string{"Scope Removed Pod Synced"}},
		"objects of a scope that was removed":           {[]Record{object(Changed, "a", "b"), scope(synced, Removed), scope("Unknown", synced)}, []string{`Object Changed Pod web p:"a">"b" ?`}},
		"a member that joins":                           {[]Record{member(Joined, version("", "1")), scope("Unknown", synced), object(Created, "", "b")}, []string{`Member Joined version:>"1"`, `Object Created Pod web p:>"b"`}},
		"a member that joins and changes":               {[]Record{member(Joined, version("", "1")), member(Changed, version("1", "2"))}, []string{`Member Joined version:>"2"`}},
		"a member that changes":                         {[]Record{member(Changed, version("1", "2")), member(Changed, version("2", "3"))}, []string{`Member Changed version:"1">"3"`}},
		"a member that changes and changes back":        {[]Record{member(Changed, version("1", "2")), member(Changed, version("2", "1"))}, nil},
		"a scope that is new, of a member that changes": {[]Record{member(Changed, version("1", "2")), scope("Unknown", synced)}, []string{`Member Changed version:"1">"2"`, "Scope Synced Pod Unknown"}},
		"a member that joins and leaves":                {[]Record{member(Joined, version("", "1")), object(Created, "", "b"), member(Left)}, nil},
		"a member that leaves, with its objects":        {[]Record{object(Changed, "a", "b"), scope(synced, stale), member(Left)}, []string{"Member Left"}},
		"a member that leaves and joins":                {[]Record{object(Changed, "a", "b"), member(Left), member(Joined, version("", "1"))}, []string{`Object Changed Pod web p:"a">"b" ?`}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := folding(t, c.records...); !slices.Equal(got, c.want) {
				t.Errorf("folded is %q, want %q", got, c.want)
			}
		})
	}
}

// TestFold_OfAMemberThatMoves between processes: that is no difference, and what was read of it again is in doubt.
func TestFold_OfAMemberThatMoves(t *testing.T) {
	member := func(second int, transition string) Record {
		r := Record{Time: at(second), Type: Member, Transition: transition, Member: "m", MemberUID: "m", Key: transition}
		if transition == Joined {
			r.Changes = []Change{{Path: "version", After: text("1")}}
		}
		return r
	}
	scope := func(was string) Record {
		return Record{Time: at(111), Type: Scope, Transition: "Synced", Was: was, Member: "m", MemberUID: "m", Kind: "Pod", Key: "scope"}
	}
	pod := Record{Time: at(120), Type: Object, Transition: Changed, Member: "m", MemberUID: "m", Kind: "Pod", Name: "web", UID: "u", ResourceVersion: "7", Changes: []Change{{Path: "p", Before: text("a"), After: text("b")}}, Key: "pod"}
	for name, c := range map[string]struct {
		logs [][]Record
		held bool // by another process, throughout
		want []string
	}{
		"and is read again":               {[][]Record{{member(110, Left)}, {member(110, Joined), scope("Unknown"), pod}}, false, []string{"Object Changed ?"}},
		"and is handed over":              {[][]Record{{member(110, Left)}, {member(110, Joined), scope(""), pod}}, false, []string{"Object Changed"}},
		"late":                            {[][]Record{{member(130, Left)}, {member(110, Joined), scope(""), pod}}, false, []string{"Object Changed"}},
		"that joins two":                  {[][]Record{{member(110, Joined), scope("Unknown"), pod}, {member(111, Joined), scope("Unknown"), pod}}, false, []string{"Member Joined", "Object Changed"}},
		"that leaves two":                 {[][]Record{{pod, member(130, Left)}, {pod, member(131, Left)}}, false, []string{"Member Left"}},
		"to one that stood by":            {[][]Record{{pod, member(130, Left)}, {pod}}, true, []string{"Object Changed"}},
		"to one that begins to stand by":  {[][]Record{{pod}, {member(110, Joined), scope("Unknown"), pod}}, true, []string{"Object Changed"}},
		"there and back, and leaves then": {[][]Record{{member(110, Left), member(130, Joined), member(140, Left)}, {member(110, Joined), pod, member(130, Left)}}, false, []string{"Member Left"}},
	} {
		t.Run(name, func(t *testing.T) {
			merged := NewFold(at(100), at(200), false)
			for i, log := range c.logs {
				f := foldOf(t, log, at(100), at(200), true)
				if c.held && !slices.ContainsFunc(log, func(r Record) bool { return r.Type == Member }) {
					f.Holds("m", "m")
				}
				part, err := json.Marshal(f)
				if err == nil {
					err = merged.Merge(part)
				}
				if err != nil {
					t.Fatal(i, err)
				}
			}
			var got []string
			for _, r := range merged.Records() {
				line := string(r.Type) + " " + r.Transition
				if r.Net.Incomplete {
					line += " ?"
				}
				got = append(got, line)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("folded is %q, want %q", got, c.want)
			}
		})
	}
}

// TestFold_ClaimsNoEqualityThatIsNotKnown: of values that were cut, and where not all changes are recorded.
func TestFold_ClaimsNoEqualityThatIsNotKnown(t *testing.T) {
	long := func(end string) json.RawMessage {
		v, _ := clipped([]byte(`"` + strings.Repeat("x", 2*maxValue) + end + `"`))
		return v
	}
	change := func(more int, changes ...Change) Record {
		return Record{Type: Object, Transition: Changed, Kind: "Pod", Name: "web", UID: "u", Changes: changes, More: more}
	}
	cut := []Record{
		change(0, Change{Path: "a", Before: long("1"), After: text("b"), Cut: true}, Change{Path: "c", Before: text("d"), After: long("1"), Cut: true}),
		change(0, Change{Path: "a", Before: text("b"), After: long("2"), Cut: true}, Change{Path: "c", Before: long("1"), After: text("d"), Cut: true}),
	}
	_, all := folding(t, cut...)
	if len(all) != 1 || len(all[0].Changes) != 1 || all[0].Changes[0].Path != "a" || !all[0].Changes[0].Cut {
		t.Errorf("what was cut is folded to %+v", all)
	}
	got, _ := folding(t, change(3, Change{Path: "a", Before: text("1"), After: text("2")}), change(1, Change{Path: "a", Before: text("2"), After: text("1")}))
	if want := []string{"Object Changed Pod web and 4"}; !slices.Equal(got, want) {
		t.Errorf("of what is not recorded there is %q, want %q", got, want)
	}
}

// TestFold_OfAnObjectThatIsFoundAgain: a process that ended before the index was written recorded it, and the next one found it in a list, as it was then.
func TestFold_OfAnObjectThatIsFoundAgain(t *testing.T) {
	record := func(transition string, version int, changes ...Change) Record {
		r := Record{Type: Object, Transition: transition, Kind: "Pod", Name: "web", UID: "u", ResourceVersion: fmt.Sprint(version), Changes: changes}
		r.Key = r.key()
		return r
	}
	created := record(Created, 1, Change{Path: "a", After: text("1")}, Change{Path: "b", After: text("1")}, Change{Path: "c[x]", After: text("1")})
	changed := record(Changed, 2, Change{Path: "a", Before: text("1"), After: text("2")})
	found := record(Created, 5, Change{Path: "a", After: text("5")}, Change{Path: "c[x]", After: text("5")}, Change{Path: "d", After: text("5")})
	got, _ := folding(t, created, changed, found)
	if want := []string{`Object Created Pod web a:>"5" c[x]:>"5" d:>"5"`}; !slices.Equal(got, want) {
		t.Errorf("it is %q, want %q", got, want)
	}
	got, _ = folding(t, changed, found)
	if want := []string{`Object Changed Pod web a:"1">"5"`}; !slices.Equal(got, want) {
		t.Errorf("it is %q, want %q: of others it is not known what they were", got, want)
	}
	got, _ = folding(t, created, changed, created, changed) // all is taken again
	if want := []string{`Object Created Pod web a:>"2" b:>"1" c[x]:>"1"`}; !slices.Equal(got, want) {
		t.Errorf("it is %q, want %q", got, want)
	}
}

// TestFold_CountsAllThatIsLong of what it holds.
func TestFold_CountsAllThatIsLong(t *testing.T) {
	long := strings.Repeat("x", maxText)
	for name, set := range map[string]func(*Record){
		"violation": func(r *Record) { r.Violation = long }, "exempt": func(r *Record) { r.Exempt = long }, "message": func(r *Record) { r.Message = long },
		"by": func(r *Record) { r.By = long },
	} {
		f := NewFold(at(0), at(2), false)
		var err error
		n := 0
		for ; err == nil; n++ {
			r := Record{Time: at(1), Type: Verdict, Transition: Opened, Kind: "Pod", Name: fmt.Sprint(n), Policy: "p"}
			set(&r)
			err = f.Add(&r)
		}
		if held := n * maxText; held > maxFoldSize+maxText {
			t.Errorf("%s: %d bytes are held: %v", name, held, err)
		}
	}
}

// TestFold_HasBounds in things and bytes, of what differs.
func TestFold_HasBounds(t *testing.T) {
	add := func(f *Fold, n int, transition string, value string) error {
		r := Record{Time: at(1), Type: Object, Transition: transition, Kind: "Pod", UID: fmt.Sprint(n), ResourceVersion: "1", Changes: []Change{{Path: "p", After: text(value)}}}
		r.Key = r.key()
		return f.Add(&r)
	}
	f := NewFold(at(0), at(2), false)
	for n := range MaxFolded + 10 { // as Jobs come and go
		if err := add(f, n, Created, "x"); err != nil {
			t.Fatal(err)
		}
		if err := add(f, n, Deleted, ""); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.items) > 0 || f.size != 0 || f.live != 0 {
		t.Errorf("of what came and went %d are held, of %d bytes", len(f.items), f.size)
	}
	n := 0
	for err := error(nil); err == nil; n++ {
		err = add(f, -1-n, Deleted, "")
	}
	if n != MaxFolded+1 {
		t.Errorf("%d things were folded", n)
	}
	f, n = NewFold(at(0), at(2), false), 0
	var err error
	for value := strings.Repeat("x", 1000); err == nil; n++ {
		err = add(f, n, Created, value)
	}
	if bytes := n * 1000; bytes > maxFoldSize || n < 1000 || err.Error() != "what differs is folded from more than 67108864 bytes: narrow the span or the selection" {
		t.Errorf("%d things of 1 KB were folded: %v", n, err)
	}
	examined := 0
	for err = nil; err == nil; examined++ {
		err = f.Examined()
	}
	if examined != MaxExamined+1 {
		t.Errorf("%d records were examined", examined)
	}
}
