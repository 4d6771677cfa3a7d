package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

const (
	// tableName is the table of the CNI project's plugin; there is one for each family.
	tableName = "cni_hostport"
	// hostPorts has the rules of mappings.
	hostPorts = "hostports"
	// masquerading has the rules that hide the source.
	masquerading = "masquerading"
	// attempts limits how often rules are listed again when another call removes some meanwhile.
	attempts = 5
)

// family is the part of the packet filter for IPv4 or IPv6.
type family struct {
	table *nftables.Table
	// protocol is its number for address translation.
	protocol uint32
	// source and destination are the places of the addresses in a packet; both have this length.
	source, destination, length uint32
}

// families are IPv4 and IPv6 (RFC 791, section 3.1; RFC 8200, section 3).
var families = []family{
	{&nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}, unix.NFPROTO_IPV4, 12, 16, net.IPv4len},
	{&nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv6}, unix.NFPROTO_IPV6, 8, 24, net.IPv6len},
}

// familyOf returns the family of an address, and the address in the form of a packet.
func familyOf(address net.IP) (family, []byte) {
	if short := address.To4(); short != nil {
		return families[0], short
	}
	return families[1], address.To16()
}

func (f family) chain(name string) *nftables.Chain {
	return &nftables.Chain{Table: f.table, Name: name}
}

// applies tells whether a mapping belongs to this family.
func (f family) applies(one mapping) bool {
	own, _ := familyOf(net.ParseIP(one.HostIP))
	return one.HostIP == "" || own.table == f.table
}

// addRules adds the rules of a container, and the chains that all containers share, in one transaction.
func addRules(container string, pod net.IP, mappings []mapping, hidesSource bool) error {
	connection, err := nftables.New()
	if err != nil {
		return fmt.Errorf("speaking to the kernel about host ports: %w", err)
	}
	family, address := familyOf(pod)
	connection.AddTable(family.table)
	connection.AddChain(family.chain(hostPorts))
	hooks := []struct {
		name string
		hook *nftables.ChainHook
	}{{"prerouting", nftables.ChainHookPrerouting}, {"output", nftables.ChainHookOutput}}
	for _, one := range hooks {
		chain := family.chain(one.name)
		chain.Type, chain.Hooknum, chain.Priority = nftables.ChainTypeNAT, one.hook, nftables.ChainPriorityNATDest
		connection.AddChain(chain)
		connection.FlushChain(chain)
		connection.AddRule(&nftables.Rule{Table: family.table, Chain: chain, Exprs: toLocal()})
	}
	add := func(chain string, expressions []expr.Any) {
		connection.AddRule(&nftables.Rule{
			Table:    family.table,
			Chain:    family.chain(chain),
			Exprs:    expressions,
			UserData: userdata.AppendString(nil, userdata.TypeComment, container),
		})
	}
	for _, one := range mappings {
		if family.applies(one) {
			add(hostPorts, family.translate(one, address))
		}
	}
	chain := family.chain(masquerading)
	chain.Type, chain.Hooknum, chain.Priority = nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource
	connection.AddChain(chain)
	if hidesSource {
		add(masquerading, family.masquerade(address, address))
		if len(address) == net.IPv4len {
			add(masquerading, family.masquerade([]byte{127, 0, 0, 1}, address))
		}
	}
	if err := connection.Flush(); err != nil {
		return fmt.Errorf("leading ports of the node to the pod %s: %w", pod, err)
	}
	return nil
}

// toLocal leads packets to any address of the node to the rules of mappings.
func toLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
		&expr.Verdict{Kind: expr.VerdictJump, Chain: hostPorts},
	}
}

// translate leads packets to a port of the node to the pod.
func (f family) translate(one mapping, pod []byte) []expr.Any {
	var all []expr.Any
	if host := net.ParseIP(one.HostIP); host != nil && !host.IsUnspecified() {
		_, address := familyOf(host)
		all = f.compare(f.destination, address)
	}
	return append(all,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocols[one.Protocol]}},
		// All three protocols have the destination's port here (RFC 9293, section 3.1).
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(one.HostPort)},
		&expr.Immediate{Register: 1, Data: pod},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(one.ContainerPort)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: f.protocol, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	)
}

// masquerade gives packets of this source to the pod an address of the node: the pod would answer itself, or 127.0.0.1.
func (f family) masquerade(source, pod []byte) []expr.Any {
	all := append(f.compare(f.source, source), f.compare(f.destination, pod)...)
	return append(all, &expr.Masq{})
}

// compare matches an address of a packet.
func (f family) compare(place uint32, address []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: place, Len: f.length},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: address},
	}
}

// rulesOf lists the rules of a container in a chain; none if the chain does not exist.
func (f family) rulesOf(connection *nftables.Conn, chain, container string) ([]*nftables.Rule, error) {
	rules, err := connection.GetRules(f.table, f.chain(chain))
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the rules of host ports: %w", err)
	}
	var own []*nftables.Rule
	for _, rule := range rules {
		if comment, _ := userdata.GetString(rule.UserData, userdata.TypeComment); comment == container {
			own = append(own, rule)
		}
	}
	return own, nil
}

// removeRules removes the rules of a container. It is idempotent.
func removeRules(container string) error {
	for _, family := range families {
		var err error
		for attempt := 0; attempt == 0 || errors.Is(err, unix.ENOENT) && attempt < attempts; attempt++ {
			err = family.removeOnce(container)
		}
		if err != nil {
			return fmt.Errorf("removing host ports: %w", err)
		}
	}
	return nil
}

func (f family) removeOnce(container string) error {
	connection, err := nftables.New()
	if err != nil {
		return err
	}
	for _, chain := range []string{hostPorts, masquerading} {
		rules, err := f.rulesOf(connection, chain, container)
		if err != nil {
			return err
		}
		for _, rule := range rules {
			if err := connection.DelRule(rule); err != nil {
				return err
			}
		}
	}
	return connection.Flush()
}

// checkRules fails if a mapping of a container has no rule.
func checkRules(container string, pod net.IP, mappings []mapping) error {
	family, _ := familyOf(pod)
	wanted := 0
	for _, one := range mappings {
		if family.applies(one) {
			wanted++
		}
	}
	connection, err := nftables.New()
	if err != nil {
		return err
	}
	rules, err := family.rulesOf(connection, hostPorts, container)
	if err != nil {
		return err
	}
	if len(rules) != wanted {
		return fmt.Errorf("%d of %d ports of the node lead to the pod %s", len(rules), wanted, pod)
	}
	return nil
}
