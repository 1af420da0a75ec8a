package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
)

// wantedFor returns what a record says that it is wanted for, and whether something of it is not known.
func wantedFor(kind aggregate.Kind, rec *aggregate.Record) (keys []interest.Key, always bool, err error) {
	var body struct {
		C map[string]map[string]json.RawMessage
		F map[string]string
		O json.RawMessage
	}
	if err := json.Unmarshal(rec.Body, &body); err != nil {
		return nil, false, err
	}
	if _, unreadable := body.F[""]; body.O != nil || unreadable {
		keys = append(keys, interest.Key{Space: interest.Names(kind), Bucket: interest.Bucket(interest.NameKey(rec.Namespace, rec.Name))})
	}
	for view, of := range body.C {
		for key := range of {
			keys = append(keys, interest.Key{Space: interest.View(view), Bucket: interest.Bucket(key)})
		}
	}
	delete(body.F, "")
	return sorted(keys), len(body.F) > 0, nil
}

func sorted(keys []interest.Key) []interest.Key {
	slices.SortFunc(keys, func(a, b interest.Key) int {
		if a.Space != b.Space && a.Space < b.Space || a.Space == b.Space && a.Bucket < b.Bucket {
			return -1
		}
		return 1
	})
	return keys
}

// checkKeys compares what an export says that the records of a scope are wanted for with what is in them.
func checkKeys(x *policy.Export, s aggregate.ScopeInfo) error {
	told := map[[2]string]bool{}
	var k interest.Keys
	err := x.Records(s.Member, s.Kind, func(rec *aggregate.Record) error {
		want, always, err := wantedFor(s.Kind, rec)
		if err != nil {
			return err
		}
		ref := aggregate.Ref{Member: s.Member, Kind: s.Kind, Namespace: rec.Namespace, Name: rec.Name}
		if x.KeysOf(ref, &k); !slices.Equal(sorted(slices.Clone(k.Of)), want) || k.Always != always {
			return fmt.Errorf("%s is wanted for %v %t, not %v %t: %s", ref, k.Of, k.Always, want, always, rec.Body)
		}
		told[[2]string{rec.Namespace, rec.Name}] = true
		return checkFind(x, ref, want)
	})
	if err != nil {
		return err
	}
	return x.Keys(s.Member, s.Kind, func(namespace, name string, k *interest.Keys) error {
		if some := k.Always || len(k.Of) > 0; some != told[[2]string{namespace, name}] {
			return fmt.Errorf("%s %s %s/%s has a record: %t, and is wanted for %v %t", s.Member, s.Kind, namespace, name, !some, k.Of, k.Always)
		}
		return nil
	})
}

var errFound = errors.New("found")

// checkFind finds an object by each of its keys.
func checkFind(x *policy.Export, ref aggregate.Ref, keys []interest.Key) error {
	for _, key := range keys {
		var b interest.Builder
		b.Add(key.Space, key.Bucket)
		err := x.Find(b.Take(), func() error { return nil }, func(found aggregate.Ref) error {
			if found == ref {
				return errFound
			}
			return nil
		})
		if !errors.Is(err, errFound) {
			return fmt.Errorf("%s is not found by %v: %w", ref, key, err)
		}
	}
	return nil
}
