"""How good is this gradient? A certificate measures it against the exact one, and says why not."""

from toreqprop.certificate.certifying import CERTIFIERS as CERTIFIERS
from toreqprop.certificate.certifying import MAX_NORM_ERROR as MAX_NORM_ERROR
from toreqprop.certificate.certifying import MIN_COSINE as MIN_COSINE
from toreqprop.certificate.certifying import certify as certify
from toreqprop.certificate.certifying import check_problem as check_problem
from toreqprop.certificate.estimate import Loss as Loss
from toreqprop.certificate.estimate import estimator_by_name as estimator_by_name
from toreqprop.certificate.report import Certificate as Certificate
from toreqprop.certificate.report import NormCertificate as NormCertificate
from toreqprop.certificate.report import PhaseCertificate as PhaseCertificate
from toreqprop.certificate.report import Reason as Reason
from toreqprop.certificate.report import TensorCertificate as TensorCertificate
