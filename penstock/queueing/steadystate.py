"""What a server does in the long run: numbers present, transfers, times, distributions."""
import math
import numpy as np
from penstock.queueing.boundary import *

def measures(server):
    b=solve_boundary(server); K=server.effective_batch_size
    P,c=b.probabilities,b.timer_flows
    lam,mu,g=server.arrival_rate,server.service_rate,server.transfer_rate
    rho,xi=server.load,server.arrivals_per_transfer_time
    j=np.arange(len(P)); P0,P1=P.sum(),(j*P).sum(); c0,c1,c2=c.sum(),(j*c).sum(),(j*(j-1.)*c).sum()
    if server.timer=='idle' or server.timer_rate==0 or K==1:
        T=(lam+((K-j)*c).sum())/(K+xi)
        full=T-c0
        # slow
        d1=K*server.slack
        d2=rho**2*(K*(K+1)/2+xi*K+xi+xi**2)-K*(K-1)/2
        n2=-lam*P1+(c2/2*(1-rho**2)-rho**2*((xi+xi**2)*c0+(1+xi)*c1))
        gp=-(n2/(lam*d1)-full/lam*d2/d1)/rho
        L=(rho+xi/g*T+P1+c1/g+xi*(K*full/lam+gp))/(1-rho)
    else:
        cyc=phase_cycle(server); T=1/(cyc+1/g)
        th=server.timer_rate/lam
        J=len(P); q=1/(1+th)
        p=np.empty(J); p[0]=1; p[1:]=q**np.arange(1,J)
        p*=T/lam
        pb=T/g
        psi=np.zeros(J+1)
        for m in range(J-1,0,-1): psi[m]=(lam*psi[m+1]+pb)/(lam+server.timer_rate)
        psi[0]=(1-pb)/g
        X=mu*(psi[:J]*(p-P)).sum()-lam*(p*psi[1:]).sum()
        L=(rho+P1+X)/(1-rho-pb)
    return L,T
