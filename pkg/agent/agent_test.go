package agent_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/agent"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/kube/tcpproxy"
)

// joined is a member that is followed by its agent.
type joined struct {
	*hub
	follower    *follower
	member, uid string
	agent       *running
	store       agent.Store
}

func join(t *testing.T, life time.Duration) *joined {
	t.Helper()
	j := &joined{hub: newHub(t, life), store: agent.InDirectory(t.TempDir())}
	j.member, j.uid = j.create("edge")
	j.agent = j.runAgent(credentials(t, nameOf(t), readAll), j.token(j.member, j.uid, time.Hour), j.store)
	j.follower = j.follow([]string{"ConfigMap", "Namespace"}, clusterinformers.Spec{Name: j.member, UID: j.uid, Agent: true})
	j.follower.synced(j.member)
	return j
}

// TestAgent_MemberIsFollowed: nothing but the agent dials, and what is there is in the index.
func TestAgent_MemberIsFollowed(t *testing.T) {
	j := join(t, 0)
	put(t, "followed")
	j.follower.has(j.member, "followed", true)
	until(t, "the status says so", func() error {
		if s := j.hub.member("edge").Status; s.Connected == nil || !*s.Connected || s.AgentVersion != "v9.9.9" || s.LastContactTime == nil ||
			s.CertificateExpires == nil || s.Process != "federator-0" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// relists is how often anything was listed again, and resumes how often a watch was resumed.
func (j *joined) relists() (relists, resumes int) {
	for _, d := range j.follower.status(j.member).Details {
		for _, n := range d.Relists {
			relists += n
		}
		resumes += d.Restarts
	}
	return relists, resumes
}

// TestAgent_ACutCostsNoList: watches go on where they were.
func TestAgent_ACutCostsNoList(t *testing.T) {
	j := join(t, 0)
	put(t, "before")
	j.follower.has(j.member, "before", true)
	before, _ := j.relists()
	ok(t, j.proxy.Set(tcpproxy.Mode{State: tcpproxy.BlackHole}))
	cut := time.NewTimer(5 * time.Second)
	defer cut.Stop()
	put(t, "meanwhile")
	j.follower.away(j.member)
	<-cut.C
	ok(t, j.proxy.Set(tcpproxy.Mode{}))
	j.follower.has(j.member, "meanwhile", true)
	if after, resumed := j.relists(); after != before || resumed == 0 {
		t.Errorf("%d lists, %d before the cut; %d watches resumed", after, before, resumed)
	}
}

// TestAgent_FederatorRestarts: the agent comes back by itself.
func TestAgent_FederatorRestarts(t *testing.T) {
	j := join(t, 0)
	before, _ := j.relists()
	j.stop()
	put(t, "meanwhile")
	j.follower.away(j.member)
	j.start()
	j.follower.has(j.member, "meanwhile", true)
	if after, _ := j.relists(); after != before {
		t.Errorf("%d lists, %d before", after, before)
	}
}

// TestAgent_RestartsWithoutToken: what it has joined with is kept.
func TestAgent_RestartsWithoutToken(t *testing.T) {
	j := join(t, 0)
	j.agent.stop()
	j.follower.away(j.member)
	j.runAgent(credentials(t, nameOf(t)+"-again", readAll), "", j.store)
	put(t, "again")
	j.follower.has(j.member, "again", true)
}

// TestAgent_OfADeletedMemberIsOut: its connections end at once, and its certificate is good for nothing.
func TestAgent_OfADeletedMemberIsOut(t *testing.T) {
	j := join(t, 0)
	ok(t, j.members().Delete(t.Context(), "edge", metav1.DeleteOptions{}))
	until(t, "its connections are closed", func() error {
		c, err := j.server.Load().DialAgent(t.Context(), j.member, j.uid)
		if err == nil {
			c.Close()
			return errors.New("there is one")
		}
		return nil
	})
	j.follower.away(j.member)
	// Another Member of the name is another member: the certificate is not its.
	member, uid := j.create("edge")
	for range 3 {
		if c, err := j.server.Load().DialAgent(t.Context(), member, uid); err == nil {
			c.Close()
			t.Fatal("the agent of the former Member is connected as the new one")
		}
	}
	// With a token of the new one the agent joins again.
	j.agent.stop()
	j.runAgent(credentials(t, nameOf(t)+"-again", readAll), j.token(member, uid, time.Hour), j.store)
	until(t, "the agent has joined again", func() error {
		c, err := j.server.Load().DialAgent(t.Context(), member, uid)
		if err == nil {
			c.Close()
		}
		return err
	})
}
