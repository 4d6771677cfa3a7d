//! Client of the kernel's `ethtool` netlink family, which manages the devices of links (kernel:
//! Documentation/networking/ethtool-netlink.rst). The requests in `settings`, the parsers in `answers` and the encoding
//! in `message` are pure.

mod answers;
mod message;
mod settings;

use std::io;

use corten_types::network_ethernet::{EthernetSpec, EthernetStatus};
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_generic::GenlMessage;
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use rustix::io::Errno;

pub use super::generic::NoAnswer;
use super::generic::{Family, send};
use answers::{Question, Tell};
use message::Message;

/// Name of the netlink family.
const FAMILY: &str = "ethtool";
/// Multicast group for change notifications.
const MONITOR: &str = "monitor";

/// The client.
#[derive(Debug, Clone)]
pub struct Ethtool(Family);

impl Ethtool {
    /// Resolves the netlink family.
    ///
    /// # Errors
    /// [`NoAnswer::Refused`] if the kernel has no such family.
    pub fn new() -> Result<Ethtool, NoAnswer> {
        Family::named(FAMILY).map(Ethtool)
    }

    /// Settings of a link's device; `None` for a link without a device, with a driver that reports nothing, or that is
    /// gone.
    ///
    /// # Errors
    /// [`NoAnswer::Lost`]. Settings that the driver does not report are absent.
    pub fn status(&self, link: &str) -> Result<Option<EthernetStatus>, NoAnswer> {
        self.told(link, answers::OTHERS)
    }

    /// Cable state of a link's device: port, speed and duplex.
    ///
    /// # Errors
    /// Same as [`Ethtool::status`].
    pub fn cable(&self, link: &str) -> Result<Option<EthernetStatus>, NoAnswer> {
        self.told(link, &[(Question::Modes, answers::modes)])
    }

    /// The device's basic information and its answers to these requests.
    fn told(
        &self,
        link: &str,
        others: &[(Question, Tell)],
    ) -> Result<Option<EthernetStatus>, NoAnswer> {
        let Some(information) = self.ask(Question::Information, link)? else {
            return Ok(None);
        };
        let mut status = EthernetStatus::default();
        answers::information(&information, &mut status);
        for (question, tell) in others {
            if let Some(answer) = self.ask(*question, link)? {
                tell(&answer, &mut status);
            }
        }
        Ok(Some(status))
    }

    /// Applies the settings to a link's device. Returns a message for each refused setting, by its field in the config.
    ///
    /// # Errors
    /// [`NoAnswer::Lost`].
    pub fn set(&self, link: &str, wanted: &EthernetSpec) -> Result<Vec<String>, NoAnswer> {
        let mut refused = Vec::new();
        for (field, message) in settings::settings(link, wanted) {
            match self.send(message, NLM_F_ACK) {
                Ok(_) => {}
                Err(NoAnswer::Refused(error)) => refused.push(format!("{field}: {error}")),
                Err(lost @ NoAnswer::Lost(_)) => return Err(lost),
            }
        }
        Ok(refused)
    }

    fn ask(&self, question: Question, link: &str) -> Result<Option<Vec<u8>>, NoAnswer> {
        match self.send(question.about(link), 0) {
            Ok(answers) => Ok(answers.into_iter().next().map(|answer| answer.attributes)),
            Err(NoAnswer::Refused(_)) => Ok(None),
            Err(lost @ NoAnswer::Lost(_)) => Err(lost),
        }
    }

    fn send(&self, message: Message, flags: u16) -> Result<Vec<Message>, NoAnswer> {
        let mut message = GenlMessage::from_payload(message);
        message.set_resolved_family_id(self.0.id);
        send(message, flags)
    }

    /// Subscribes to changes of settings.
    ///
    /// # Errors
    /// The kernel refuses the socket or the subscription.
    pub fn listen(&self) -> io::Result<Changes> {
        let mut socket = TokioSocket::new(NETLINK_GENERIC)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        if let Some(group) = self.0.group(MONITOR) {
            socket.socket_mut().add_membership(group)?;
        }
        Ok(Changes(socket))
    }
}

/// Stream of change notifications.
#[expect(
    missing_debug_implementations,
    reason = "the socket does not implement Debug"
)]
pub struct Changes(TokioSocket);

impl Changes {
    /// Returns after the next change, or when notifications were lost.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn next(&mut self) -> io::Result<()> {
        match self.0.recv_from_full().await {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::NOBUFS) => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_base::testing::alone;
    use rtnetlink::LinkVeth;

    use super::*;

    /// A veth pair is a device with a driver; the loopback's driver reports nothing.
    #[test]
    fn kernel_reports_the_ethtool_status_of_a_veth_pair() {
        alone(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            let pair = LinkVeth::new("veth0", "veth1").build();
            handle.link().add(pair).execute().await.unwrap();
            let ethtool = Ethtool::new().unwrap();
            let status = ethtool.status("veth0").unwrap().unwrap();
            assert_eq!((&*status.duplex, status.speed), ("Full", Some(10_000)));
            assert_eq!(status.link_state, Some(false));
            let cable = ethtool.cable("veth0").unwrap().unwrap();
            assert_eq!((cable.speed, cable.port), (status.speed, status.port));
            assert_eq!(
                (cable.duplex, cable.features),
                (status.duplex.clone(), vec![])
            );
            assert_eq!(ethtool.cable("lo").unwrap(), None);
            let channels = status.channels.unwrap();
            assert!(channels.rx >= Some(1) && channels.combined.is_none());
            let feature = |name: &str| status.features.iter().find(|one| one.name == name);
            assert_eq!(feature("tx-scatter-gather").unwrap().status, "on");
            assert_eq!(feature("loopback").unwrap().status, "off [fixed]");
            assert_eq!(ethtool.status("lo").unwrap(), None);
            assert_eq!(ethtool.status("nosuchlink").unwrap(), None);
            let mut wanted = EthernetSpec::default();
            wanted
                .features
                .insert("tx-scatter-gather".to_owned(), false);
            wanted.rings.rx = Some(64);
            let refused = ethtool.set("veth0", &wanted).unwrap();
            assert_eq!(refused, ["rings: Operation not supported (os error 95)"]);
            let status = ethtool.status("veth0").unwrap().unwrap();
            let feature = status
                .features
                .iter()
                .find(|one| one.name == "tx-scatter-gather");
            assert_eq!(feature.unwrap().status, "off");
            let long = "a-name-that-is-far-too-long-for-a-link";
            assert_eq!(ethtool.status(long).unwrap(), None);
        });
    }
}
